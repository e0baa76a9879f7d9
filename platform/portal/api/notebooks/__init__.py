"""Notebooks in the REST API."""
