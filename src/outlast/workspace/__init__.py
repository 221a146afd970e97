"""The files half of a save point: exact, durable, private git saves of a folder, and the way back."""
