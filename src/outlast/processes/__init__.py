"""Processes of the operating system: start, watch, name, signal, stop."""
