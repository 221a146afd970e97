"""One module a subject; each runs in a process of its own. The interface is in ../README.md."""
