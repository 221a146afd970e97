"""One attempt of a command, from the claim to its recorded end."""
