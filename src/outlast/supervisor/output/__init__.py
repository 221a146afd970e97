"""The command's output: passed on unchanged, and a cleaned copy in a log."""
