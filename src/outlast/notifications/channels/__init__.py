"""The channels: a command, the desktop, a webhook, ntfy, Slack. Each says what it sends, and raises Unsent if that failed."""
