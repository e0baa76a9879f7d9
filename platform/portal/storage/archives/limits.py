"""Limits of archives, and the messages of their refusals."""

from dataclasses import dataclass

from portal.core.errors import InvalidInput, TooLarge

GIB = 1024**3
MIB = 1024**2


@dataclass(frozen=True)
class ArchiveLimits:
    """Limits on the output of an archive. Sizes count bytes really read, never headers.

    `ratio` is bytes out for each byte of the archive, checked once `ratio_from_bytes` came out.
    `members` counts files and folders, also folders that only occur in the path of a file.
    """

    members: int = 100_000
    total_bytes: int = 20 * GIB
    member_bytes: int = 10 * GIB
    ratio: int = 200
    ratio_from_bytes: int = 10 * MIB
    depth: int = 32
    name_bytes: int = 255
    path_bytes: int = 1024


class UnsafeArchive(InvalidInput):
    default_code = "unsafe_archive"


class BrokenArchive(InvalidInput):
    default_code = "broken_archive"


class ArchiveTooLarge(TooLarge):
    default_code = "archive_too_large"


def quote_name(name: str) -> str:
    """Return the name of a member for a message."""
    return repr(name if len(name) <= 100 else f"{name[:100]}…")


def unsafe(name: str, why: str) -> UnsafeArchive:
    """Describe a member that must not be unpacked."""
    return UnsafeArchive(
        f"The archive's member {quote_name(name)} {why}; nothing was unpacked.",
        field="archive",
        next_step="Pack the archive again from plain files and folders, without this member.",
    )


def broken(why: str) -> BrokenArchive:
    """Describe an archive that cannot be read."""
    return BrokenArchive(
        f"The archive cannot be read: {why}; nothing was unpacked.",
        field="archive",
        next_step="Pack it again as .tar, .tar.gz or .zip, and check that the upload was complete.",
    )


def too_large(why: str) -> ArchiveTooLarge:
    """Describe an archive beyond a limit."""
    return ArchiveTooLarge(
        f"The archive {why}; nothing was unpacked.",
        field="archive",
        next_step="Split it into several archives.",
    )
