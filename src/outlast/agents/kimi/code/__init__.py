"""Kimi Code, the agent that replaced kimi-cli."""
