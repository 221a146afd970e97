"""The documents of a store: the overview, a run's story, saves, charts and acts. Page, API and terminal share them."""
