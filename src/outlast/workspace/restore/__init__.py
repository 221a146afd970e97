"""The way back: files, index and HEAD as a save holds them."""
