"""Problems of the whole installation that people should know of, each in a sentence or two.

A problem does not make the portal unready: its pages still work and show the problem.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class HealthProblem:
    """A current problem. `name` is for programs, `text` for people."""

    name: str
    text: str


# Returns the text of a problem, or an empty string if there is none.
Check = Callable[[], str]
_checks: dict[str, Check] = {}


def add_check(name: str, check: Check) -> None:
    """Register a check for `current_problems`. It may read the database."""
    _checks[name] = check


def current_problems() -> list[HealthProblem]:
    """Run all checks. Raises DatabaseError."""
    texts = ((name, check()) for name, check in _checks.items())
    return [HealthProblem(name, text) for name, text in texts if text]


def problem_of(name: str) -> str:
    """Return the text of one problem, empty where there is none. Raises DatabaseError."""
    check = _checks.get(name)
    return check() if check is not None else ""
