"""Room for the data plane: keys, limits, routing, capture."""
