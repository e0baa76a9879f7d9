"""Services of schedules."""
