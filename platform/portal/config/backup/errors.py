"""The error of backups."""


class BackupError(Exception):
    """A backup cannot be created or read. The message is one line for people."""
