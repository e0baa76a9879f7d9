"""The error of backups."""


class BackupError(Exception):
    """A backup cannot be made or read; the message is one line for people."""
