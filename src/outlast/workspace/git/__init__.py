"""Git's objects, packs and refs as bytes, and running git."""
