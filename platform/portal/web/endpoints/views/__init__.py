"""Views: endpoints."""
