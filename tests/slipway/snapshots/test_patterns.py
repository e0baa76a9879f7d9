"""Ignore patterns mean what git takes them to mean."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipway.snapshots.patterns import exclude_matching, read_patterns
from slipway.snapshots.secrecy import looks_secret
from tests.slipway.snapshots.folders import git

PATHS = (
    *("a", "b", "ab", "abc", "a.py", "b.pyc", "data", "foo bar", "#x", "!x", "A", "x]", "a*b"),
    *("a/b", "a/data", "a/b/c", "data/a", "data/x/a.py", "doc/frotz", "a/doc/frotz", "a/b/data/c"),
    *("ab/cd/ef", "b/a.py", "trail ", "a-b", "1", "a/1"),
)
EXAMPLES = (
    *(
        "*.py",
        "*.py\n!a.py",
        "data/",
        "/data",
        "data",
        "a/",
        "/a",
        "a/*",
        "a/**",
        "**/data",
        "a/**/c",
        "***/1",
        "a/***",
        "****/c",
        "a/***/c",
        "***",
    ),
    *(
        "doc/frotz",
        "/*",
        "!*",
        "*\n!*/\n!a.py",
        "foo bar",
        "foo\\ bar",
        "trail\\ ",
        "trail ",
        "\\#x",
    ),
    *(
        "\\!x",
        "#x",
        "!x",
        "[ab]",
        "[!ab]",
        "[^ab]",
        "[a-c]b",
        "[[:digit:]]",
        "x[]]",
        "a\\*b",
        "a*b",
    ),
    *(
        "**",
        "a**",
        "**b",
        "a/**/**/c",
        "*/a",
        "?",
        "??",
        "a?b",
        "[a",
        "a\\",
        "",
        " ",
        "/",
        "//",
        "**/",
    ),
    *("[[:nope:]]", "[z-a]", "a/b\n!a/b", "a\n!a/b", "*/", "data/\n!data/x/a.py", "[a-]b", "[]-a]"),
)


def git_ignores(folder: Path, text: str) -> set[str]:
    """Return which of PATHS git leaves out."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    (folder / ".gitignore").write_text(text)
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=folder,
        input="\0".join(PATHS).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return {name for name in done.stdout.decode().split("\0") if name}


def we_ignore(text: str) -> set[str]:
    return set(PATHS) - set(exclude_matching(PATHS, read_patterns(text)))


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_pattern_ignores_what_git_ignores(text: str, tmp_path: Path) -> None:
    assert we_ignore(text) == git_ignores(tmp_path, text)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lines=st.lists(
        st.text(alphabet="ab*?/![]-\\ .1d^", max_size=8).filter(lambda line: "\\" not in line[-1:]),
        min_size=1,
        max_size=4,
    )
)
def test_any_pattern_ignores_what_git_ignores(lines: list[str], tmp_path: Path) -> None:
    text = "\n".join(lines)
    assert we_ignore(text) == git_ignores(tmp_path, text)


def test_a_pattern_of_a_folder_speaks_of_that_folder_only() -> None:
    patterns = [*read_patterns("/x", base="a/"), *read_patterns("*.log")]
    assert exclude_matching(["x", "a/x", "a/b/x", "b.log", "a/b.log"], patterns) == ["x", "a/b/x"]


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "a/.env.local",
        "PROD.ENV",
        "keys/server.pem",
        ".ssh/config",
        "x/.aws/anything",
        "id_ed25519",
        "secrets.yaml",
        "a/service-account-prod.json",
    ],
)
def test_the_name_of_a_secret_is_recognised(path: str) -> None:
    assert looks_secret(path)


@pytest.mark.parametrize(
    "path", [".env.example", "environment.py", "key.py", "secrets.py", "id_rsa.pub", "a/env/b.py"]
)
def test_an_ordinary_name_is_no_secret(path: str) -> None:
    assert not looks_secret(path)
