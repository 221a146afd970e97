"""Git's objects, packs and refs as bytes; running git."""
