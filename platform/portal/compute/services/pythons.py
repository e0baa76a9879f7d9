"""Versions of Python that nodes have, and the error for others."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from portal.compute.models import Node
from portal.core.errors import InvalidInput

# The SDK and the launcher run in the Python of a task.
OLDEST_PYTHON: Final = "3.11"
SUPPORTED_PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")


def is_minor(text: str) -> bool:
    """Return True for a minor version of Python 3, such as `3.12`."""
    return re.fullmatch(r"3\.\d{1,2}", text, re.ASCII) is not None


def minor_of(version: str) -> int:
    """Return 12 for `3.12`."""
    return int(version.split(".")[1])


def sorted_pythons(versions: Iterable[str]) -> list[str]:
    """Return versions without repetitions, the oldest first."""
    return sorted(set(versions), key=minor_of)


def offered_pythons() -> list[str]:
    """Return the versions that nodes report, the oldest first. Empty if none reports any."""
    rows = Node.objects.present().values_list("pythons", flat=True)
    return sorted_pythons(version for pythons in rows for version in pythons)


def require_python(version: str | None) -> None:
    """Raise InvalidInput for a version that no node has, as far as nodes report them."""
    if version is None:
        return
    offered = offered_pythons()
    if version not in (offered or SUPPORTED_PYTHONS):
        raise no_such_python(version, offered)


def no_such_python(version: str, offered: Sequence[str], *, why: str = "") -> InvalidInput:
    """Return the error for a version, or a range, that no node has.

    `offered` are the versions that nodes have, `why` is the sentence that says where it comes from.
    """
    if offered:
        message = f"No node has Python {version}; nodes have {', '.join(offered)}."
    else:
        message = f"Python {version} is not supported."
    if is_minor(version) and minor_of(version) < minor_of(OLDEST_PYTHON):
        message += f" Slipway needs Python {OLDEST_PYTHON} or later in jobs."
    choice = ", ".join(offered or SUPPORTED_PYTHONS)
    next_step = f"Choose one of {choice} (in the request, which comes before files of the code)"
    if version in SUPPORTED_PYTHONS:
        next_step += (
            f", or ask an administrator to install it on a node: uv python install {version}"
        )
    return InvalidInput(
        f"{message} {why}".strip(), code="no_such_python", field="python", next_step=f"{next_step}."
    )
