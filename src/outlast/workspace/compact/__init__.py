"""Fewer and smaller packs, and what `outlast gc` removes."""
