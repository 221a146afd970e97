"""The evaluation: designs, trials, kills, and the table at the end."""
