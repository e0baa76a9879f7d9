"""Backup and restore of an installation (rows, keys and bytes) as one file."""
