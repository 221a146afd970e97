"""What stands among the words of commands."""
