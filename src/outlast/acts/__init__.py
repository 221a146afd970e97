"""What a person does to one run: one plan for each act, for command, page and API. How a wish is read is theirs."""
