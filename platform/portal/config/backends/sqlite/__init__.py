"""SQLite: bounded waits for its lock, and never a new file where one is missing."""
