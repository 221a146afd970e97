"""One module for each page: documents of `board` in, a whole page out. Nothing here asks the store or the network."""
