"""Acts on the outside world: intent before, outcome after, and what is done about those in doubt."""
