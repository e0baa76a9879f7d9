"""Pages of projects and teams."""
