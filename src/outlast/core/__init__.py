"""Pure: events, the fold over them, and every decision computed from it. No I/O, clock or randomness."""
