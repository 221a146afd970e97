"""The session of an agent CLI: which one to resume, its transcript, and our copy of it."""
