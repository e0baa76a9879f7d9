"""Adapters of external systems, one file each."""
