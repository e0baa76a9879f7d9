"""Use cases of training."""
