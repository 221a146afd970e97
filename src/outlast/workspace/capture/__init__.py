"""Making a save: from looking at the folder to writing the ref."""
