"""Validation of names of files and folders from outside.

Artifacts, files in datasets, archives and snapshots, uploads and notebooks are checked by it.
"""

import re
import unicodedata

from slipway.schemas.base import forbidden_character

MAX_PART_BYTES = 255
MAX_PATH_BYTES = 1024
# Joiners are invisible too, but letters of several languages and many emoji need them.
_JOINERS = "\u200c\u200d"
# Default_Ignorable_Code_Point of DerivedCoreProperties.txt, Unicode 16.0 (unchanged since 14.0, and
# its ranges include code points that are not assigned yet). Python's unicodedata does not have it.
_IGNORABLE = (
    r"\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u200B-\u200F\u202A-\u202E"
    r"\u2060-\u206F\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFF8"
    r"\U0001BCA0-\U0001BCA3\U0001D173-\U0001D17A\U000E0000-\U000E0FFF"
)
# Characters with a blank glyph, of Braille, hieroglyphs, Khitan and musical notes. Spaces of all
# widths are allowed.
_BLANK = r"\u2800\U00013441\U00013442\U00016FE4\U0001D159"
_INVISIBLE = re.compile(f"[{_IGNORABLE}{_BLANK}]")
# The emoji variation selector, and the characters it may follow: the bases of
# emoji-variation-sequences.txt 16.0 in ranges of emoji-data.txt, and keycaps such as 1\uFE0F\u20E3.
_EMOJI_SELECTOR = "\ufe0f"
_KEYCAP_BASES = "0123456789#*"
_KEYCAP = "\u20e3"
_EMOJI = re.compile(
    r"[\u00A9\u00AE\u203C\u2049\u2122\u2139\u2194-\u2199\u21A9\u21AA\u231A\u231B\u2328\u23CF"
    r"\u23E9-\u23F3\u23F8-\u23FA\u24C2\u25AA\u25AB\u25B6\u25C0\u25FB-\u25FE\u2600-\u27BF"
    r"\u2934\u2935\u2B05-\u2B07\u2B1B\u2B1C\u2B50\u2B55\u3030\u303D\u3297\u3299"
    r"\U0001F004-\U0001FAFF]"
)
_DRIVE = re.compile(r"\A[A-Za-z]:")


def forbidden_name_character(name: str) -> str | None:
    """Return the first character that is not allowed in a file name, or None.

    Besides characters that no text may contain, these are invisible ones: formats, line separators,
    characters that renderers ignore by default, and blank glyphs.
    """
    if name.isascii() and name.isprintable():
        return None
    bad = forbidden_character(name)
    if bad is not None:
        return bad
    for index, character in enumerate(name):
        if character in _JOINERS or (character == _EMOJI_SELECTOR and _selects_emoji(name, index)):
            continue
        if _INVISIBLE.match(character) or unicodedata.category(character) in ("Cf", "Zl", "Zp"):
            return character
    return None


def _selects_emoji(name: str, index: int) -> bool:
    """Return whether the selector at this index belongs to an emoji."""
    if index == 0:
        return False
    base = name[index - 1]
    if base in _KEYCAP_BASES:
        return name[index + 1 : index + 2] == _KEYCAP
    return _EMOJI.match(base) is not None


def path_error(path: str, *, max_bytes: int = MAX_PATH_BYTES) -> str | None:
    """Return the fault of a relative path, as a predicate such as "has an empty part"."""
    bad = forbidden_name_character(path)
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
