"""Fewer and smaller packs; what `outlast gc` removes."""
