"""The rule for names of files and folders that come from outside, the same wherever they arrive.

Artifacts, files in datasets, archives and snapshots, uploads and notebooks are checked by it.
"""

import re
import unicodedata

from slipway.schemas.base import forbidden_character

MAX_PART_BYTES = 255
MAX_PATH_BYTES = 1024
# Joiners are invisible too, but letters of several languages and many emoji need them.
_JOINERS = "\u200c\u200d"
_DRIVE = re.compile(r"\A[A-Za-z]:")


def unfit_character(name: str) -> str | None:
    """Return the first character that a name of a file may not have, or None.

    Besides what no text may have these are invisible ones: formats and line separators.
    """
    if name.isascii() and name.isprintable():
        return None
    bad = forbidden_character(name)
    if bad is not None:
        return bad
    for character in name:
        if character not in _JOINERS and unicodedata.category(character) in ("Cf", "Zl", "Zp"):
            return character
    return None


def fault_of_path(path: str, *, max_bytes: int = MAX_PATH_BYTES) -> str | None:
    """Return what is wrong with a relative path, as a predicate such as "has an empty part"."""
    bad = unfit_character(path)
    if bad is not None:
        return f"has the character U+{ord(bad):04X}, which no name may have"
    if "\\" in path:
        return "has a backslash in its name, which is a folder on some systems"
    if path.startswith("/"):
        return "is an absolute path"
    if _DRIVE.match(path):
        return "begins like a drive of Windows"
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "has an empty part, . or .."
    if any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        return f"has a name of more than {MAX_PART_BYTES} bytes in it"
    if len(path.encode()) > max_bytes:
        return f"has more than {max_bytes} bytes"
    return None
