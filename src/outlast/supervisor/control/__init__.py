"""Acts of a person or the service on supervised runs: resume, kill, wake, take over."""
