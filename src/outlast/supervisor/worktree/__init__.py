"""A git worktree for one run: made, filled with ignored files, removed."""
