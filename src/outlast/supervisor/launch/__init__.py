"""How a command is started, and started again with nobody there: words, folder, environment."""
