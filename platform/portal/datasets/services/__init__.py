"""Use cases of datasets."""
