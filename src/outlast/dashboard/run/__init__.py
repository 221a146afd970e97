"""One run as documents: timeline, effects, requests."""
