"""What a person does to runs: pause, settle, fork, export, gc, share a budget."""
