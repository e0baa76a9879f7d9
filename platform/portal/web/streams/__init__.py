"""Event streams of open pages."""
