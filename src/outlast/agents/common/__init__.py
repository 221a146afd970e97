"""What several agents share, as functions and small values."""
