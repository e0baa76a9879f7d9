"""Sweeps: searches for the parameters with which a script does best."""
