"""Adapters of the byte store, one module for each kind, and a fake."""
