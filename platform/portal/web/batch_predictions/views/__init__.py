"""Views of batch predictions."""
