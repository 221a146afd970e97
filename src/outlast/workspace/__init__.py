"""Exact, durable, private git saves of a folder, and restoring them."""
