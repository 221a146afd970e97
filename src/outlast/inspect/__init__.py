"""Looks at runs and never changes one."""
