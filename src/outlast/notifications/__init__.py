"""Notifications: what a run tells its person who is elsewhere. Each notice is sent once per cause, by a process of its own."""
