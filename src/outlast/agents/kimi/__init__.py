"""Kimi Code and the older kimi-cli."""
