"""Hashes that requirements state, which the files that are installed must have."""

import re
from collections.abc import Mapping
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_HASH: Final = re.compile(r"--hash[= ](sha256:[0-9a-f]{64})")
# Of a lock: continued lines belong to the line before.
_CONTINUED: Final = re.compile(r"\s*\\\s*\n\s*")


def required_hashes(requirements: str) -> dict[str, set[str]]:
    """Return the hashes of the packages that have some, by their normalized names."""
    required: dict[str, set[str]] = {}
    for line in requirements.splitlines():
        hashes, name = _HASH.findall(line), _NAME.match(line)
        if hashes and name is not None:
            required.setdefault(_normalized(name[0]), set()).update(hashes)
    return required


def with_required_hashes(lock: str, required: Mapping[str, set[str]]) -> str | None:
    """Return a lock without hashes that requirements do not allow.

    None if no hash of some package is allowed.
    """
    lines = []
    for line in _CONTINUED.sub(" ", lock).splitlines():
        name, hashes = _NAME.match(line), _HASH.findall(line)
        if name is not None and _normalized(name[0]) in required:
            hashes = sorted(required[_normalized(name[0])].intersection(hashes))
            if not hashes:
                return None
        package = line.partition(" --hash")[0].rstrip()
        lines.append(" \\\n    ".join([package, *(f"--hash={value}" for value in hashes)]))
    return "\n".join([*lines, ""])


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
