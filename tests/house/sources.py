"""The files of the repository that people wrote, and the Python in them, parsed once."""

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON_ROOTS = (
    *("platform", "workers", "notebooks_service", "tests", "bench", "deploy", "scripts"),
    "examples",
)
_NOT_OURS = frozenset({"node_modules", "build", "dist", "__pycache__"})
# Folders of dots that hold our own files; every other one is a cache or a tool's.
_OUR_DOT_FOLDERS = frozenset({".ci", ".github"})
_BINARY = frozenset({".png", ".jpg", ".ico", ".gz", ".zip", ".tar", ".parquet", ".mo", ".woff2"})


@cache
def files() -> tuple[Path, ...]:
    """Return every file of ours, in the order of their paths."""
    return tuple(sorted(_walk(ROOT)))


def _walk(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in _NOT_OURS
            and not name.endswith(".egg-info")
            and (not name.startswith(".") or name in _OUR_DOT_FOLDERS)
            and not (Path(at) / name).is_symlink()
        ]
        for name in names:
            path = Path(at) / name
            if name not in (".git", ".env") and path.suffix != ".pyc" and not path.is_symlink():
                yield path


def shown(path: Path) -> str:
    """Return the path as people name it: from the root of the repository."""
    return path.relative_to(ROOT).as_posix()


@cache
def texts() -> dict[str, str]:
    """Return the text of every file of ours that is text, by its path from the root."""
    contents = {}
    for path in files():
        if path.suffix in _BINARY:
            continue
        contents[shown(path)] = path.read_text(encoding="utf-8")
    return contents


@cache
def modules() -> dict[str, ast.Module]:
    """Return every Python file of ours, parsed; migrations are generated and left out."""
    return {
        name: ast.parse(text, name)
        for name, text in texts().items()
        if name.endswith(".py") and "/migrations/" not in name
    }


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of a module, nested ones and methods included."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
