"""The result of a run, merged into the repository that somebody stands in."""
