"""Compile the modules that a program would import first, without running any of them.

    BASE-INTERPRETER -I -S -c THIS-SOURCE SITE-PACKAGES MODULE ...

Runs in a base interpreter of any version, so it needs the standard library alone. Follows import
statements at the top of modules. Importing them would be simpler, but runs what packages have put
there, with leave to write into the environment.
"""

import ast
import marshal
import os
import struct
import sys
from collections.abc import Iterator
from importlib.util import MAGIC_NUMBER, cache_from_source

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def compile_imports(site: str, roots: list[str]) -> int:
    """Compile the roots and their top-level imports, and return the number of compiled files."""
    seen: set[str] = set()
    names = list(roots)
    compiled = 0
    while names:
        parts = names.pop().split(".")
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[:count])
            if name in seen:
                continue
            seen.add(name)
            path = _source_of(site, name)
            if path is None:
                continue
            try:
                with open(path, "rb") as file:  # noqa: PTH123 - thousands of them
                    tree = ast.parse(file.read())
                compiled += _write_bytecode(path, tree)
            except (OSError, SyntaxError, ValueError, RecursionError):
                continue
            is_package = path.endswith("__init__.py")
            names.extend(_imports(tree, name if is_package else name.rpartition(".")[0]))
    return compiled


def _source_of(site: str, name: str) -> str | None:
    base = os.path.join(site, *name.split("."))  # noqa: PTH118 - thousands of them
    for path in (f"{base}/__init__.py", f"{base}.py"):
        if os.path.isfile(path):  # noqa: PTH113
            return path
    return None


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    todo = [tree]
    while todo:
        for node in ast.iter_child_nodes(todo.pop()):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(node, package)
                if base:
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                todo.extend(node.orelse)
            elif isinstance(node, (ast.stmt, ast.excepthandler)) and not isinstance(
                node, _FUNCTIONS
            ):
                todo.append(node)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: max(0, len(parts) - node.level + 1)]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _write_bytecode(path: str, tree: ast.Module) -> bool:
    target = cache_from_source(path)
    if os.path.lexists(target):
        return False
    source = os.stat(path)  # noqa: PTH116
    code = compile(tree, path, "exec", dont_inherit=True)
    # The form of PEP 552: no flags, then the time and the size of the source.
    header = struct.pack("<III", 0, int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF)
    os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
    draft = f"{target}.{os.getpid()}"
    with open(draft, "wb") as file:  # noqa: PTH123
        file.write(MAGIC_NUMBER + header + marshal.dumps(code))
    os.replace(draft, target)  # noqa: PTH105
    return True


if __name__ == "__main__":
    compile_imports(sys.argv[1], sys.argv[2:])
