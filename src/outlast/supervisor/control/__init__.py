"""What a person or the service does to supervised runs: resume, kill, wake, take over."""
