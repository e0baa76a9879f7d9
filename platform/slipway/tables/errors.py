"""Errors of the reader of tables."""


class Unreadable(Exception):
    """The rest of a file cannot be read. Has the reason and, where known, the line."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message, self.line = message, line
