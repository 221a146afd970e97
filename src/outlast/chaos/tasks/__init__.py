"""Scripted tasks for trials."""
