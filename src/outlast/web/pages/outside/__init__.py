"""Pages for those who have no login: the login itself, and the one act of a link."""
