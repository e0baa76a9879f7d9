"""The parts of a pyproject.toml that say which packages a project needs."""

import tomllib
from typing import Any

from slipway.requirement_files.lines import LineKind, RequirementLine

# Of documents that a person wrote, or nobody would.
UNREADABLE = (tomllib.TOMLDecodeError, RecursionError, AttributeError, TypeError, KeyError)


def check_shape(document: dict[str, Any]) -> None:
    """Raise ValueError unless the parts of a pyproject.toml that are read have their types."""
    project, tool = document.get("project", {}), document.get("tool", {})
    tables: list[object] = [project, tool]
    if isinstance(project, dict) and isinstance(tool, dict):
        tables += [project.get("optional-dependencies", {}), tool.get("poetry", {})]
    lists: list[object] = []
    if isinstance(project, dict):
        lists += [project.get("dependencies", []), project.get("dynamic", [])]
        optional = project.get("optional-dependencies", {})
        lists += optional.values() if isinstance(optional, dict) else ()
    if not all(isinstance(table, dict) for table in tables):
        raise ValueError("project and tool are tables")
    texts = [text for each in lists if isinstance(each, list) for text in each]
    if not all(isinstance(each, list) for each in lists):
        raise ValueError("dependencies are lists")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("dependencies are texts")


def whole_line(path: str) -> RequirementLine:
    """Return the line that stands for a file as a whole."""
    return RequirementLine(path, 1, LineKind.PROJECT, path)


def line_of(text: str, value: str) -> int:
    """Return the number of the first line that contains a value, or 1."""
    lines = text.splitlines()
    return next((number for number, line in enumerate(lines, 1) if value in line), 1)


def dependencies_of(
    line: RequirementLine, path: str, document: dict[str, Any], extras: tuple[str, ...]
) -> list[str]:
    """Return the dependencies of a project, with those of its extras."""
    project = document.get("project", {})
    optional = project.get("optional-dependencies", {})
    values = list(project.get("dependencies", ()))
    for extra in extras:
        if extra not in optional:
            raise line.refused(f"{path} has no extra {extra}", "Name one of its extras, or none.")
        values += optional[extra]
    if not project and "poetry" in document.get("tool", {}):
        raise line.refused(
            f"{path} lists its dependencies for Poetry alone",
            "Run poetry lock, so that poetry.lock is used, or list them in [project].",
        )
    return values
