"""The run as it happens: lines for the person at the terminal, JSON lines for programs, and an ending for both."""
