"""The suite that runs a test is a marker in its file, and the Makefile selects by known markers."""

import re
from pathlib import Path

import pytest

from tests.house.sources import ROOT

# Markers of files that `make test` leaves to a suite with more installed, or more time.
_LATER = frozenset({"integration", "browser", "docker", "ranks", "deploy", "slow", "kubernetes"})
_MARKER = re.compile(r"\bpytest\.mark\.(\w+)")
_MARKS = re.compile(r"^pytestmark = (?:\[$.*?^\]|[^\n]+$)", re.MULTILINE | re.DOTALL)
_WORDS = frozenset({"and", "or", "not"})


def _makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def _names(expression: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"\$\(\w+\)", "", expression))) - _WORDS


def _markers_of(file: Path) -> set[str]:
    return set(_MARKER.findall("\n".join(_MARKS.findall(file.read_text(encoding="utf-8")))))


def test_every_marker_that_the_makefile_selects_by_is_known(pytestconfig: pytest.Config) -> None:
    """Pytest takes any word in `-m`, so a misspelled one would leave tests out."""
    expressions = re.findall(r'-m "([^"]+)"|(?:pytest|PYTEST\)) -m ([a-z]+)\b', _makefile())
    variables = re.findall(r"^(?:NEEDS_MORE|ONLY_SLOW) := (.+)$", _makefile(), re.MULTILINE)
    known = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    selected = set[str]().union(
        *(_names(text) for pair in expressions for text in pair), *map(_names, variables)
    )
    assert selected == _LATER | {"postgres", "thorough"}
    assert selected <= known


def test_every_integration_test_has_the_marker_of_its_suite() -> None:
    files = sorted((ROOT / "tests" / "integration").rglob("test_*.py"))
    assert files
    assert not [str(file) for file in files if not _markers_of(file) & _LATER]


def test_the_makefile_lists_no_test_files() -> None:
    listed = re.findall(r"\btests?/[\w/]*test_\w+\.py", _makefile())
    assert set(listed) == {"tests/portal/api/test_openapi.py"}  # a check of its own
