"""Views: monitoring."""
