"""Pages of batch predictions."""
