"""The witness: a separate process that logs what really happened."""
