"""Views: projects and teams."""
