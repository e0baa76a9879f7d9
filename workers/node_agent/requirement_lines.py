"""Validation of a project's requirements: packages only, no options for pip."""

import re
from typing import Final

from slipway.schemas.base import forbidden_character
from slipway.schemas.workloads import ReasonCode
from workers.node_agent.errors import StartError

_LIMIT_CHARACTERS: Final = 256 * 1024
_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION: Final = r"(?:===?|~=|!=|<=?|>=?)\s*[A-Za-z0-9.*+!_-]+"
_MARKER: Final = (
    r"\(*\s*[a-z_]+\s*(?:===?|!=|<=?|>=?|~=|\s(?:not\s+)?in\s)\s*"
    r"(?:\"[A-Za-z0-9._ -]*\"|'[A-Za-z0-9._ -]*')\s*\)*"
)
_REQUIREMENT = re.compile(
    rf"{_NAME}"
    r"(?:\s*\[[A-Za-z0-9._,\s-]*\])?"
    rf"(?:\s*\(?\s*{_VERSION}(?:\s*,\s*{_VERSION})*\s*\)?|\s*@\s*(?:git\+)?https://[^\s;]+)?"
    rf"(?:\s*;\s*{_MARKER}(?:\s*(?:and|or)\s*{_MARKER})*)?"
    r"(?:\s+--hash=[a-z0-9]+:[0-9a-f]+)*"
)


def checked_requirements(text: str) -> str:
    """Return the requirements, one per line, without comments. Raises StartError if invalid."""
    if len(text) > _LIMIT_CHARACTERS:
        raise _refused(1, "…", f"the file is longer than {_LIMIT_CHARACTERS} characters")
    kept: list[str] = []
    joined = re.sub(r"\\\r?\n", " ", text)
    for number, line in enumerate(joined.splitlines(), start=1):
        requested = re.sub(r"(?:^|\s)#.*", "", line).strip()
        if not requested:
            continue
        if forbidden_character(requested, multiline=True):
            raise _refused(number, requested, "it contains a control character")
        if requested.startswith("-"):
            raise _refused(number, requested, "options belong in the pip configuration of the node")
        if not _REQUIREMENT.fullmatch(requested):
            raise _refused(
                number, requested, "it is neither NAME with versions nor NAME @ https://…"
            )
        kept.append(requested)
    return "\n".join(kept) + "\n"


def _refused(number: int, line: str, why: str) -> StartError:
    return StartError(
        f"Line {number} of the requirements, {line[:100]!r}, is not accepted: {why}.",
        ReasonCode.ENVIRONMENT_FAILED,
    )
