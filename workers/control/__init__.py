"""The Celery worker and beat that run the portal's tasks; the only worker that imports portal."""
