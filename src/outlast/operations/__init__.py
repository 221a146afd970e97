"""A person's operations on runs: pause, settle, fork, export, gc, share a budget."""
