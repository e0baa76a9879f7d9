"""Each snippet of each page is what it says: commands there are, calls there are, JSON, SQL."""

import ast
import importlib.util
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
import typer.main
from django.core.management import get_commands

import slipway
from slipway.cli.main import app
from tests.docs.pages import Snippet, every_snippet
from tests.live import ROOT

SHELL = frozenset({"sh", "bash", "console"})
KNOWN = SHELL | {"", "python", "json", "sql", "text", "mermaid", "ini", "yaml"}
# What `manage.py` answers itself, before Django is there.
_OWN_COMMANDS = frozenset({"up", "settings"})
_SPACED = re.compile(r"\\\n\s*")


# Where `sh` stands, a test types the snippet as it is; `bash` and `console` are looked at here.
TYPED = {
    "docs/quickstart.md": "tests/integration/browser/test_walks_of_pages.py",
    "docs/predictions.md": "tests/integration/browser/test_walks_of_pages.py",
    "docs/training.md": "tests/slipway/test_docs_training.py",
}


def _named(language: str) -> list[Snippet]:
    return [snippet for snippet in every_snippet() if snippet.language == language]


def _shells() -> list[Snippet]:
    return [
        snippet
        for snippet in every_snippet()
        if snippet.language in SHELL
        or (snippet.language == "" and _begins_with_a_command(snippet.text))
    ]


def _begins_with_a_command(text: str) -> bool:
    first = re.compile(r"\A\s*(\$ )?(\w+=\S* )*(slipway|curl|make|pip|export|python|manage\.py) \S")
    return bool(first.match(text))


def test_every_snippet_says_what_it_is() -> None:
    assert not [str(snippet) for snippet in every_snippet() if snippet.language not in KNOWN]


def test_what_says_that_it_is_typed_is_typed_by_a_test() -> None:
    assert {snippet.page for snippet in every_snippet() if snippet.language == "sh"} == set(TYPED)
    untold = [page for page, test in TYPED.items() if Path(page).name not in _text(test)]
    assert not untold


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("snippet", _shells(), ids=str)
def test_commands_are_commands_with_their_options(snippet: Snippet) -> None:
    faults = [fault for line in lines_of(snippet.text) for fault in faults_of(line)]
    assert not faults


def lines_of(text: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a snippet, the answers that it shows left out."""
    for line in _SPACED.sub(" ", text).splitlines():
        command = line.removeprefix("$ ")
        if command.lstrip().startswith(("{", "[", "#")) or not command.strip():
            continue
        lexer = shlex.shlex(command, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("();<>|&"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def faults_of(words: list[str]) -> list[str]:
    """Say what is wrong with a simple command, as far as it is ours."""
    while words and (words[0] in ("exec", "do", "until", "while") or _is_assignment(words[0])):
        words = words[1:]
    if not words:
        return []
    program, rest = words[0].rpartition("/")[2], words[1:]
    if program == "slipway":
        return _slipway(rest)
    if program == "make":
        targets = [target for target in rest if "=" not in target and not target.startswith("-")]
        return [f"make {target}" for target in targets if f"\n{target}:" not in _makefile()]
    if program in ("python", "python3", "manage.py"):
        return _python([program, *rest])
    return []


def _is_assignment(word: str) -> bool:
    return re.match(r"[A-Z_]+=", word) is not None


@cache
def _makefile() -> str:
    return "\n" + (ROOT / "Makefile").read_text(encoding="utf-8")


@cache
def _root() -> Any:
    return typer.main.get_command(app)


def _slipway(words: list[str]) -> list[str]:
    command, given = _root(), list(words)
    named = "slipway"
    while hasattr(command, "commands"):
        if not given or given[0].startswith("-"):
            return []
        verbs = given[0].split("|")
        missing = [verb for verb in verbs if verb not in command.commands]
        if missing and hasattr(command, "default"):
            command = command.commands[command.default]
            break
        if missing:
            return [f"{named} {missing[0]}"]
        named = f"{named} {verbs[0]}"
        command, given = command.commands[verbs[0]], given[1:]
    known = {name for option in command.params for name in [*option.opts, *option.secondary_opts]}
    ours = given[: given.index("--")] if "--" in given else given
    options = [option.partition("=")[0] for option in ours if re.match(r"--?[a-z]", option)]
    return [f"{named} {option}" for option in options if option not in known and option != "--help"]


def _python(words: list[str]) -> list[str]:
    if "-m" in words and len(words) > words.index("-m") + 1:
        module = words[words.index("-m") + 1]
        return [] if importlib.util.find_spec(module) else [f"python -m {module}"]
    if "manage.py" in words:
        rest = words[words.index("manage.py") + 1 :]
        known = _OWN_COMMANDS | set(get_commands())
        return [f"manage.py {name}" for name in rest[:1] if name not in known]
    return []


@pytest.mark.parametrize(
    "line",
    [
        "slipway jobs list",
        "slipway job list --colour blue",
        "KEY=$(slipway endpoint keys invent a b)",
        "make breakfast",
        ".venv/bin/python manage.py upp",
        "python -m workers.nothing",
    ],
)
def test_a_command_that_is_none_is_found(line: str) -> None:
    assert [fault for words in lines_of(line) for fault in faults_of(words)]


@pytest.mark.parametrize(
    "snippet", [snippet for snippet in _shells() if snippet.language in ("sh", "bash")], ids=str
)
def test_what_says_that_it_is_shell_is_shell(snippet: Snippet) -> None:
    text = re.sub(r"<[a-z][a-z: ]*>", "what-a-reader-puts-there", snippet.text)
    done = subprocess.run(
        ["/bin/bash", "-n"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("snippet", _named("python"), ids=str)
def test_python_calls_what_there_is(snippet: Snippet) -> None:
    tree = ast.parse(snippet.text)
    with slipway.Client("http://localhost:1", "slp_x") as client:
        roots = {"slipway": slipway, "client": client, "digits": None}
        faults = [ast.unparse(node) for node in _chains(tree) if not _is_there(node, roots)]
    assert not faults


def _chains(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield each longest chain of attributes that begins at a name."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            yield node


def _is_there(node: ast.Attribute, roots: dict[str, Any]) -> bool:
    names: list[str] = []
    at: ast.expr = node
    while isinstance(at, ast.Attribute):
        names.insert(0, at.attr)
        at = at.value
    if not isinstance(at, ast.Name) or roots.get(at.id) is None:
        return True
    value = roots[at.id]
    for name in names:
        if not hasattr(value, name):
            return False
        value = getattr(value, name)
    return True


def test_a_call_of_nothing_is_found() -> None:
    snippet = Snippet("page", 1, "python", "client.jobs.dance()\n")
    with pytest.raises(AssertionError):
        test_python_calls_what_there_is(snippet)


@pytest.mark.parametrize("snippet", _named("json"), ids=str)
def test_json_is_json(snippet: Snippet) -> None:
    json.loads(snippet.text)


@pytest.mark.parametrize("snippet", _named("sql"), ids=str)
def test_sql_can_be_read(snippet: Snippet) -> None:
    assert duckdb.extract_statements(snippet.text)


def test_every_variable_that_a_page_names_is_read_somewhere() -> None:
    variables = {
        (page, name)
        for page, text in _texts().items()
        for name in re.findall(r"\bSLIPWAY_[A-Z0-9_]+\b", text)
        if not name.endswith("_")
    }
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("platform", "workers", "notebooks_service", "bench")
        for path in (ROOT / folder).rglob("*.py")
    )
    sources += (ROOT / "deploy" / "compose" / "compose.yaml").read_text(encoding="utf-8")
    settings = {f"SLIPWAY_{name.upper()}" for name in _settings()}
    assert not sorted((p, n) for p, n in variables if n not in settings and n not in sources)


def _settings() -> list[str]:
    files = (ROOT / "platform/portal/config").glob("env*.py")
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.findall(r"^    ([a-z0-9_]+): ", text, re.MULTILINE)


def _texts() -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/*.md")]
    }
