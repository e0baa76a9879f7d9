"""Patterns of ignore files, with the semantics of git for .gitignore."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True)
class Pattern:
    """One line of an ignore file in `base` ("" or a folder that ends in a slash)."""

    expression: re.Pattern[str]
    base: str
    is_negated: bool = False
    folders_only: bool = False
    anywhere: bool = False

    def matches(self, path: str, *, is_folder: bool) -> bool:
        """Return whether the pattern matches `path`, which is relative to the listed folder."""
        if (self.folders_only and not is_folder) or not path.startswith(self.base):
            return False
        inner = path[len(self.base) :]
        return (
            self.expression.fullmatch(inner.rpartition("/")[2] if self.anywhere else inner)
            is not None
        )


def read_patterns(text: str, *, base: str = "") -> list[Pattern]:
    """Return the patterns of an ignore file, without empty lines and comments."""
    lines = text.removeprefix("\ufeff").split("\n")
    return [
        pattern for line in lines if (pattern := _read(line.removesuffix("\r"), base)) is not None
    ]


def is_ignored(patterns: Sequence[Pattern], path: str, *, is_folder: bool) -> bool:
    """Return whether the last pattern that matches `path` itself excludes it."""
    for pattern in reversed(patterns):
        if pattern.matches(path, is_folder=is_folder):
            return not pattern.is_negated
    return False


def exclude_matching(paths: Iterable[str], patterns: Sequence[Pattern]) -> list[str]:
    """Return the files that no pattern leaves out, by themselves or by a folder above."""
    folders: dict[str, bool] = {"": False}

    def folder_is_out(folder: str) -> bool:
        if folder not in folders:
            above = folder.rpartition("/")[0]
            folders[folder] = folder_is_out(above) or is_ignored(patterns, folder, is_folder=True)
        return folders[folder]

    return [
        path
        for path in paths
        if not folder_is_out(path.rpartition("/")[0])
        and not is_ignored(patterns, path, is_folder=False)
    ]


def _read(line: str, base: str) -> Pattern | None:
    line = _without_trailing_blanks(line)
    if not line or line.startswith("#"):
        return None
    keeps = line.startswith("!")
    body = line[1:] if keeps else line
    folders_only = body.endswith("/")
    body = body.removesuffix("/")
    anywhere = "/" not in body
    body = body.removeprefix("/")
    if not body:
        return None
    return Pattern(_expression(body), base, keeps, folders_only, anywhere)


def _without_trailing_blanks(line: str) -> str:
    while line.endswith(" "):
        before = line[:-1]
        if (len(before) - len(before.rstrip("\\"))) % 2:
            break  # an escaped blank is part of the name
        line = before
    return line


@lru_cache(maxsize=1024)
def _expression(glob: str) -> re.Pattern[str]:
    """Translate a pattern. Invalid ones, such as `[a`, become one that matches nothing."""
    written, place = "", 0
    while place < len(glob):
        at_start = place == 0 or glob[place - 1] == "/"
        # For git a segment of more than two asterisks is one of two.
        stars = len(glob) - place - len(glob[place:].lstrip("*")) if at_start else 0
        if stars > 1 and glob[place + stars : place + stars + 1] == "/":
            written += "(?:[^/]+/)*"
            place += stars + 1
            continue
        if stars > 1 and place and place + stars == len(glob):
            written += ".+"
            break
        piece = _piece(glob, place)
        if piece is None:
            return _NEVER
        written += piece[0]
        place = piece[1]
    return re.compile(written, re.DOTALL)


def _piece(glob: str, place: int) -> tuple[str, int] | None:
    """Translate one wildcard, set or character. Return it and the position after it."""
    character = glob[place]
    place += 1
    if character == "*":
        while glob[place : place + 1] == "*":
            place += 1
        return "[^/]*", place
    if character == "?":
        return "[^/]", place
    if character == "[":
        return _set(glob, place)
    if character == "\\":
        return (re.escape(glob[place]), place + 1) if place < len(glob) else None
    return re.escape(character), place


_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


def _set(glob: str, place: int) -> tuple[str, int] | None:
    """Translate a set such as [a-z] whose inside begins at `place`, or None if it is not closed."""
    negated = glob[place : place + 1] in ("!", "^")
    place += negated
    items: list[str] = []
    first = True
    while first or glob[place : place + 1] != "]":
        first = False
        if glob.startswith("[:", place) and (end := glob.find(":]", place + 2)) > 0:
            if (known := _CLASSES.get(glob[place + 2 : end])) is None:
                return None
            items.append(known)
            place = end + 2
            continue
        if (low := _read_character(glob, place)) is None:
            return None
        character, place = low
        high = _read_character(glob, place + 1) if glob[place : place + 1] == "-" else None
        if high is None or glob[place + 1] == "]":
            items.append(re.escape(character))
        else:
            place = high[1]
            if character <= high[0]:
                items.append(f"{re.escape(character)}-{re.escape(high[0])}")
    inside = "".join(items)
    if not inside:
        return ("[^/]" if negated else "(?!)"), place + 1
    return (f"(?!/)[{'^' if negated else ''}{inside}]"), place + 1


def _read_character(glob: str, place: int) -> tuple[str, int] | None:
    """Return one character of a set, escaped or not, and the place behind it."""
    if glob[place : place + 1] == "\\":
        place += 1
    return (glob[place], place + 1) if place < len(glob) else None
