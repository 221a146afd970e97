"""The page and the HTTP API on a store: HTTP and HTML only. What is shown is made in `dashboard`."""
