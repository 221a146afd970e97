"""Opening a run: its terms, its project, whether it may start."""
