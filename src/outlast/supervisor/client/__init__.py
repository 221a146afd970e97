"""The other side of the socket: hook client, shims, and the script's own commands."""
