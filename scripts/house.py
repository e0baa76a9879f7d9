"""Print the figures of the house: size, names and docstrings of the source, without the tests.

make house
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parents[1]
ROOTS: Final = ("platform", "workers", "notebooks_service")
_WITH_DOCSTRING: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def sources() -> Iterator[tuple[Path, str]]:
    """Yield the Python files of the product and their text. Migrations are left out."""
    for root in ROOTS:
        for path in sorted((TOP / root).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path, path.read_text("utf-8")


def figures() -> dict[str, str]:
    """Return each figure by its name."""
    lines = comments = modules = participles = functions = documented_private = private = 0
    docstrings, chained = 0, 0
    classes: Counter[str] = Counter()
    clients: set[str] = set()
    for path, text in sources():
        modules += 1
        lines += text.count("\n")
        comments += sum(line.lstrip().startswith("# ") for line in text.splitlines())
        participles += path.stem.endswith("ing")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            if not isinstance(node, _WITH_DOCSTRING):
                continue
            docstring = ast.get_docstring(node)
            docstrings += docstring is not None
            chained += docstring is not None and ";" in docstring
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                is_private = node.name.startswith("_") and not node.name.startswith("__")
                private += is_private
                documented_private += is_private and docstring is not None
        if "PortalClient(" in text and "class PortalClient" not in text:
            clients.add(path.relative_to(TOP).as_posix())
    shared = sum(count > 1 for count in classes.values())
    return {
        "source lines": f"{lines:,} in {modules:,} modules",
        "lines that are comments": f"{100 * comments / lines:.1f} %",
        "modules ending in -ing": f"{participles}",
        "docstrings with a semicolon": f"{chained} of {docstrings:,}",
        "docstrings of private functions": f"{documented_private:,} of {private:,}",
        "functions": f"{functions:,}",
        "names used by more than one class": f"{shared}",
        "users of the one portal client": f"{len(clients)}",
    }


def main() -> int:
    """Print the figures, one a line."""
    for name, value in figures().items():
        sys.stdout.write(f"{name:45}{value}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
