"""Connections to shells in tasks, through the doors of the relay."""
