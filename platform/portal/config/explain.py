"""`manage.py settings`: the settings in force, and with --explain all details about them."""

import argparse
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import SecretStr

from portal.config.env import ROOT, Env, read_env, variable_of
from portal.config.env_file import env_file, read_dotenv

_PASSWORD_IN_URL = re.compile(r"(?<=://)([^/@]*?):[^/@]*@")
_MASK = "***"


@dataclass(frozen=True)
class Setting:
    """One row of the table. `source` is environment, .env or default."""

    variable: str
    value: str
    source: str
    default: str
    example: str
    meaning: str


def _format_setting(value: object) -> str:
    """Return a value for display, without passwords and keys."""
    if isinstance(value, SecretStr):
        return _MASK if value.get_secret_value() else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Path):
        return str(value.relative_to(ROOT)) if value.is_relative_to(ROOT) else str(value)
    return _PASSWORD_IN_URL.sub(rf"\1:{_MASK}@", str(value))


def _source_of(variable: str, environ: dict[str, str], in_file: dict[str, str]) -> str:
    # A variable of the environment overrides the file even when empty. Empty counts as not set.
    if variable in environ:
        return "environment" if environ[variable] else "default"
    return ".env" if in_file.get(variable) else "default"


def effective_settings(environ: dict[str, str], dotenv: Path) -> Iterator[Setting]:
    """Yield every setting. Raise SettingsError when one is invalid."""
    settings = read_env(environ, dotenv)
    in_file = read_dotenv(dotenv)
    for name, field in Env.model_fields.items():
        variable = variable_of(name)
        yield Setting(
            variable=variable,
            value=_format_setting(getattr(settings, name)),
            source=_source_of(variable, environ, in_file),
            default=_format_setting(field.default),
            example=str((field.examples or [""])[0]),
            meaning=field.description or "",
        )


def _table(rows: list[Setting]) -> str:
    header = ("VARIABLE", "VALUE", "FROM", "DEFAULT", "EXAMPLE")
    cells = [
        (row.variable, row.value or "(empty)", row.source, row.default or "(empty)", row.example)
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [header, *cells]) for column in range(len(header))]
    lines = ["  ".join(map(str.ljust, header, widths)).rstrip()]
    for row, line in zip(rows, cells, strict=True):
        lines.append("  ".join(map(str.ljust, line, widths)).rstrip())
        lines.extend(
            textwrap.wrap(row.meaning, 96, initial_indent="    ", subsequent_indent="    ")
        )
    lines.append("Set one in the environment or in .env; the environment wins.")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Run `manage.py settings` and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="manage.py settings", description="Show the effective settings."
    )
    parser.add_argument(
        "--explain", action="store_true", help="also defaults, meanings, examples and sources"
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    arguments = parser.parse_args(argv)
    rows = list(effective_settings(dict(os.environ), env_file(os.environ, ROOT)))
    if arguments.json and arguments.explain:
        text = json.dumps([asdict(row) for row in rows], indent=2)
    elif arguments.json:
        text = json.dumps({row.variable: row.value for row in rows}, indent=2)
    elif arguments.explain:
        text = _table(rows)
    else:
        text = "\n".join(f"{row.variable}={row.value}" for row in rows)
    sys.stdout.write(f"{text}\n")
    return 0
