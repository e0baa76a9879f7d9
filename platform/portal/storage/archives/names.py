"""Names of members: validity as file names, and collisions."""

import re
import unicodedata

from portal.storage.archives.limits import ArchiveLimits, quote_name, too_large, unsafe
from slipway.schemas.names import forbidden_name_character

Parts = tuple[str, ...]
_DRIVE = re.compile(r"\A[A-Za-z]:")


def parts_of(name: str, limits: ArchiveLimits) -> Parts:
    """Return the folders and the last name of a member, or () for the archive's own root.

    Raises UnsafeArchive for a name that leads, or could lead on some system, out of the folder it
    is unpacked in, and TooLarge for one that is too long or too deep.
    """
    bad = forbidden_name_character(name)
    if bad is not None:
        raise unsafe(name, f"has the character U+{ord(bad):04X} in its name")
    if "\\" in name:
        raise unsafe(name, "has a backslash in its name, which some systems read as a folder")
    if name.startswith("/") or _DRIVE.match(name):
        raise unsafe(name, "has an absolute path")
    plain = name
    while plain.startswith("./"):
        plain = plain[2:]
    plain = plain.removesuffix("/")
    if plain in ("", ".") and name:
        return ()
    parts = tuple(plain.split("/"))
    for part in parts:
        if part == "..":
            raise unsafe(name, "points outside its folder")
        if part in ("", "."):
            raise unsafe(name, "has an empty part in its path")
        if len(part.encode()) > limits.name_bytes:
            raise too_large(f"has a name of more than {limits.name_bytes} bytes")
    if len(parts) > limits.depth:
        raise too_large(f"nests folders deeper than {limits.depth} levels")
    if len(plain.encode()) > limits.path_bytes:
        raise too_large(f"has a path of more than {limits.path_bytes} bytes")
    return parts


class PathIndex:
    """Paths taken so far, compared as the least careful file system would compare them.

    Two members that differ in case or in Unicode's normal form alone are one file on some systems.
    Which of them remains would depend on the system, so neither is accepted.
    """

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._paths: dict[str, tuple[str, bool]] = {}

    def reserve(self, name: str, parts: Parts, *, is_folder: bool) -> None:
        """Reserve the paths of a member and of the folders above it.

        Raises UnsafeArchive when one is taken, TooLarge when there are too many.
        """
        for depth in range(1, len(parts)):
            self._reserve(name, "/".join(parts[:depth]), is_folder=True)
        self._reserve(name, "/".join(parts), is_folder=is_folder)

    def _reserve(self, name: str, path: str, *, is_folder: bool) -> None:
        composed = unicodedata.normalize("NFC", path)
        key = unicodedata.normalize("NFC", composed.casefold())
        known = self._paths.get(key)
        if known is None:
            if len(self._paths) >= self._limits.members:
                raise too_large(f"contains more than {self._limits.members} files and folders")
            self._paths[key] = (path, is_folder)
            return
        known_path, known_is_folder = known
        if known_path != path:
            raise unsafe(name, f"is the same file as {quote_name(known_path)} on some systems")
        if not (known_is_folder and is_folder):
            raise unsafe(name, "is in the archive twice")
