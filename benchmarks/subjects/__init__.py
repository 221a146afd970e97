"""One module per subject; each runs in a process of its own. The interface is in ../README.md."""
