"""Saves and their diffs as documents."""
