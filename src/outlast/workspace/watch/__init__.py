"""What changed in a folder since the last save, from the kernel's notifications."""
