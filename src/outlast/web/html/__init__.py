"""HTML, escaped by construction, and the parts that pages share."""
