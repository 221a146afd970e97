"""Restoring files, index and HEAD from a save."""
