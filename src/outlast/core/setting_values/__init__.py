"""Values of settings that are more than a number or a word: addresses, files, quiet hours. Pure."""
