"""Engines: the local one, and those of other systems."""
