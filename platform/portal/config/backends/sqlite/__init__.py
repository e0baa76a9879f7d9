"""SQLite: bounded waits for its lock, and no new file in place of a missing one."""
