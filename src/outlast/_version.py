"""The version of this package, and its only source: the build reads it from here."""

__version__ = "0.1.0"
