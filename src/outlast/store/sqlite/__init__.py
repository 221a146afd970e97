"""The embedded backend: SQLite in WAL mode, one fenced statement per append."""
