"""Saves by name: found, listed, compared, restored."""
