"""Adapters to external systems: one module each, and a fake."""
