"""Version of the SDK. A test compares it with pyproject.toml."""

__version__ = "0.1.0"
