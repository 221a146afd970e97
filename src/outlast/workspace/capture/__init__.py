"""Making a save: from the look at the folder to the ref."""
