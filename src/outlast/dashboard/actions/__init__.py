"""The acts behind the page's buttons: each is previewed, and done once."""
