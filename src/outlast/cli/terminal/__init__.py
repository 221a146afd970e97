"""The output of the terminal."""
