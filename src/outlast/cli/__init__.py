"""The command line: one file per group of commands, no logic. What they do lives in `outlast.runs`."""
