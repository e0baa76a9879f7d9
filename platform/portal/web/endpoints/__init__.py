"""Pages of endpoints."""
