"""The witness: a process of its own that logs what really happened."""
