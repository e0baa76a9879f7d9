"""Views of schedules."""
