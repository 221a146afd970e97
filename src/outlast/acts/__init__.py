"""A person's acts on one run: one plan for each act, for command, page and API. Each of these reads its own requests."""
