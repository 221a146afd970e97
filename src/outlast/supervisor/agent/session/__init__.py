"""The session of an agent CLI: which one is gone on with, its transcript, and our copy of it."""
