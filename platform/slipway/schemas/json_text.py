"""JSON parsing that refuses duplicate keys.

Parsers differ in which of two values they take, so one of them may check what another never sees.
"""

import json
from typing import Any


class DuplicateKey(ValueError):
    """An object has a key twice. `key` is that key, cut to 100 characters."""

    def __init__(self, key: str) -> None:
        self.key = key[:100]
        super().__init__(f"the key {self.key!r} appears twice in one object")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises DuplicateKey. An `object_pairs_hook` for `json.loads`."""
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKey(key)
            seen.add(key)
    return result


def read_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError (including DuplicateKey) and RecursionError."""
    return json.loads(text, object_pairs_hook=unique_keys)
