"""The words of the code: nouns that say what a thing is, in modules, classes and variables."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePath

from tests.house.sources import functions, modules

# Words that say nothing of what they name. CONTRIBUTING.md has the glossary.
REFUSED_VARIABLES = frozenset(
    {"found", "wanted", "mine", "said", "told", "asked", "moment", "facts"}
)
# Parameters and fields that others name: of the SDK, of templates, of protocols on the wire.
VARIABLES_ALLOWED = {
    ("platform/portal/web/templatetags/slipway.py", "moment"),
    ("platform/slipway/resources/notebooks.py", "mine"),
}
# Modules that end in -ing and are terms of the field.
TERMS = frozenset(
    {
        "alerting",
        "autoscaling",
        "batching",
        "clipping",
        "culling",
        "housekeeping",
        "leasing",
        "monitoring",
        "routing",
        "scheduling",
        "serving",
        "sharding",
        "signing",
        "training",
        "wiring",
    }
)
# What one process loads together: a class name means one thing there.
PROCESSES = {
    "portal": ("platform/portal/",),
    "SDK": ("platform/slipway/",),
    "gateway": ("workers/gateway/", "workers/serving/"),
    "node agent": ("workers/node_agent/", "workers/launcher/"),
    "model server": ("workers/model_server/", "workers/serving/"),
    "notebooks": ("notebooks_service/",),
}
CLASSES_ALLOWED = {"DatabaseWrapper": "Django finds the class of a back end by this name."}
_SOURCES = ("platform/", "workers/", "notebooks_service/")
_TESTS_AND_TOOLS = ("tests/", "bench/", "scripts/")


def _trees(folders: tuple[str, ...] = _SOURCES) -> Iterator[tuple[str, ast.Module]]:
    return ((name, tree) for name, tree in modules().items() if name.startswith(folders))


def test_variables_say_what_they_hold() -> None:
    faults = {
        f"{name}:{line}: {variable}: name it by what it holds"
        for name, tree in _trees(_SOURCES + _TESTS_AND_TOOLS)
        for function in functions(tree)
        for variable, line in _variables(function)
        if variable in REFUSED_VARIABLES and (name, variable) not in VARIABLES_ALLOWED
    }
    assert not faults, "\n".join(sorted(faults))


def _variables(function: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def test_modules_are_nouns_of_the_field() -> None:
    faults = []
    for name, _tree in _trees():
        stem = PurePath(name).stem
        if stem.endswith("ing") and stem not in TERMS and stem.rpartition("_")[2] not in TERMS:
            faults.append(f"{name}: a noun, or a term of the field in TERMS")
    assert not faults, "\n".join(faults)


def test_class_names_mean_one_thing_in_a_process() -> None:
    faults = []
    for process, folders in PROCESSES.items():
        places = defaultdict(set)
        for name, tree in _trees():
            if not name.startswith(folders) or "/management/" in name:
                continue
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].add(name)
        faults += [
            f"{process}: {name}: {', '.join(sorted(modules))}"
            for name, modules in sorted(places.items())
            if len(modules) > 1 and name not in CLASSES_ALLOWED
        ]
    assert not faults, "\n".join(faults)


# A docstring or comment that begins with one of these has no subject that can be searched for.
_HEADLESS = re.compile(r"(Who|What|Which|Whose|Whoever|Whatever|How|Where|Why|Whether)\b")
# Share of docstrings that may chain sentences with a semicolon, as in endpoint tables.
_SEMICOLONS = 0.01
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    docstrings = list(_docstrings())
    headless = [where for where, text in docstrings if _HEADLESS.match(text)]
    assert not headless, "\n".join(headless)
    chained = [where for where, text in docstrings if ";" in text]
    assert len(chained) <= _SEMICOLONS * len(docstrings), "\n".join(chained)


def _docstrings() -> Iterator[tuple[str, str]]:
    for name, tree in _trees():
        for node in ast.walk(tree):
            if not isinstance(node, _WITH_DOCSTRING):
                continue
            text = ast.get_docstring(node)
            if text is not None:
                yield f"{name}:{getattr(node, 'lineno', 1)}: {text[:60]}", text


def test_comments_begin_with_a_noun_or_a_verb() -> None:
    faults = [
        f"{name}:{number}: {line.strip()}"
        for name, _tree in _trees()
        for number, line in enumerate(Path(name).read_text("utf-8").splitlines(), 1)
        if line.lstrip().startswith("# ")
        and _HEADLESS.match(line.lstrip()[2:])
        # A line that goes on with the sentence of the line above begins with any word.
        and not _goes_on(name, number)
    ]
    assert not faults, "\n".join(faults)


def _goes_on(name: str, number: int) -> bool:
    above = Path(name).read_text("utf-8").splitlines()[number - 2].strip()
    return above.startswith("#") and not above.endswith((".", ":"))
