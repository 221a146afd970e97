"""kimi-cli, the Python program that Kimi Code replaced."""
