"""What a person can press: previewed, done once."""
