"""Views: jobs."""
