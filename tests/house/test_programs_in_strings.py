"""Programs in the strings of tests and benches import names that exist; mypy does not see them."""

import ast
from collections.abc import Iterator
from textwrap import dedent

from tests.house.sources import modules

_PACKAGES = ("portal", "slipway", "workers", "notebooks_service", "tests", "bench", "scripts")


def _module_name(path: str) -> str:
    return path.removesuffix(".py").removeprefix("platform/").replace("/", ".")


def _names() -> dict[str, set[str]]:
    """Return the names that each module of ours binds anywhere, by the module's name."""
    names: dict[str, set[str]] = {}
    for path, tree in modules().items():
        bound = names.setdefault(_module_name(path).removesuffix(".__init__"), set())
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                bound.add(node.name)
            elif isinstance(node, ast.Name):
                bound.add(node.id)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                bound.update(alias.asname or alias.name for alias in node.names)
    return names


def _programs() -> Iterator[tuple[str, ast.Module]]:
    """Yield the texts in our files that are Python programs with imports, with their place."""
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            program = _parsed(node.value)
            if program is not None:
                yield f"{path}:{node.lineno}", program


def _parsed(text: str) -> ast.Module | None:
    if "import " not in text:
        return None
    try:
        return ast.parse(dedent(text))
    except SyntaxError:
        return None  # prose, or a part of a program


def test_programs_in_strings_import_names_that_exist() -> None:
    names = _names()
    exported = {"Client", "Endpoint", "Model", "train", "register", "dataset", "SlipwayError"}
    faults, checked = [], 0
    for place, program in _programs():
        for node in ast.walk(program):
            if not isinstance(node, ast.ImportFrom) or node.module is None or node.level:
                continue
            if node.module.partition(".")[0] not in _PACKAGES:
                continue
            checked += 1
            if node.module not in names:
                faults.append(f"{place}: there is no module {node.module}")
                continue
            known = names[node.module] | (exported if node.module == "slipway" else set())
            faults += [
                f"{place}: {node.module} has no {alias.name}"
                for alias in node.names
                if alias.name not in known and f"{node.module}.{alias.name}" not in names
            ]
    assert checked > 30, "the search itself finds something"
    assert not faults, "\n".join(faults)
