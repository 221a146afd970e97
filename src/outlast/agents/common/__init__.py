"""Functions and small values that several agents share."""
