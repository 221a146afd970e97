"""What outlast knows about, and does to, processes of the operating system: start, watch, name, signal, stop."""
