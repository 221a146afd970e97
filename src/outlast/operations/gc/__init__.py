"""What `outlast gc` lets go."""
