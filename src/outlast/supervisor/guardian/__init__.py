"""The process that a person starts: it passes signals on, stops what is left and has the files saved."""
