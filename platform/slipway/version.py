"""The version of the SDK; equal to pyproject.toml by a test."""

__version__ = "0.1.0"
