"""Proof of the promises: the external witness, and the evaluation that kills runs and counts what happened."""
