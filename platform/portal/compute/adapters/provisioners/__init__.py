"""Provisioners of machines for node groups."""
