"""The socket that steps, effects, hooks and shims talk to, and its wire format."""
