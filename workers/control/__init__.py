"""The Celery worker and beat of the portal's tasks. No other worker imports portal."""
