"""What changed in a folder since the last save, by the kernel."""
