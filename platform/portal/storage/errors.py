"""Errors of stored bytes.

SlipwayError
└── FileDamaged     500  the stored bytes no longer match their digest, or are gone
"""

from portal.core.errors import SlipwayError


class FileDamaged(SlipwayError):
    default_code = "file_damaged"
    title = "The stored bytes are damaged"

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            next_step="Upload the file again; this repairs every file with the same content.",
        )
