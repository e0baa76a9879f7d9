"""Slipway's portal: the Django monolith that holds the truth."""
