"""Export and import: a run in one file."""
