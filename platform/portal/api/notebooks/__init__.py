"""Notebooks over REST."""
