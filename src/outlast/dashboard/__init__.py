"""What is shown of a store: the overview, a run's story, saves, charts, and what can be done. Shared by page, API and terminal."""
