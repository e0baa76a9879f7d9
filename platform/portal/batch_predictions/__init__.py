"""Batch predictions: jobs that predict a dataset with a version of a model."""
