"""Data plane: keys, limits, routing, capture."""
