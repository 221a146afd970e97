"""The vault: a private repository per repository of the user's, in the state folder, that holds its saves and all they reach."""
