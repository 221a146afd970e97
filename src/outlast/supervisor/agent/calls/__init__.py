"""The calls of an agent as effects: recorded before they happen, held when they would repeat, told when they were cut off."""
