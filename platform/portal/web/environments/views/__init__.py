"""Views of named environments."""
