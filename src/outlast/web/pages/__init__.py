"""One module for each page: documents of `dashboard` in, a whole page out. Nothing here asks the store or the network."""
