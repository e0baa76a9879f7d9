"""Views: models."""
