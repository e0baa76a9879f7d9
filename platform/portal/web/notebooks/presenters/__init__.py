"""Presenters: notebook servers, files and runs."""
