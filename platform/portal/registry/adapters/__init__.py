"""Adapters for the stored files of models."""
