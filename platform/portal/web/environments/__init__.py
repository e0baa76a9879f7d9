"""Pages of named environments."""
