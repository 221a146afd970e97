"""A run that a shell script opens for itself (`outlast shell-init`), and the process that keeps it."""
