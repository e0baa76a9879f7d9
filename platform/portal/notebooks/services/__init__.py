"""Use cases of notebooks, for people and for the Hub."""
