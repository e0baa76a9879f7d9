"""Write the reference of command line, SDK, REST API and settings, from the code itself.

    make docs

The pages go to docs/reference/, which git ignores: they say nothing that the code of this very
checkout does not say, so a stored copy could only be wrong.
"""

import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django  # noqa: E402  (the path comes first)

if __name__ == "__main__":
    django.setup()

import typer  # noqa: E402

import slipway  # noqa: E402
import slipway.distributed  # noqa: E402
from portal.api.root import api  # noqa: E402
from portal.config.env import Env, variable_of  # noqa: E402
from slipway import errors  # noqa: E402
from slipway.cli.exits import ExitCode  # noqa: E402
from slipway.cli.main import app  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
_NOTE = "Written by `make docs` from the code of this checkout."
# Prefixes of modules, which readers of a signature do not need.
_HOME = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z])")
_VERBS = ("get", "post", "put", "patch", "delete")


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name, those of nouns included."""
    yield from _below("slipway", typer.main.get_command(app))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for verb in inner:
        yield from _below(f"{name} {verb}", inner[verb])


def cli_page() -> str:
    """Return the page of the command line."""
    parts = ["# The command line", _NOTE, "What all commands share stands in [cli.md](../cli.md)."]
    for name, command in commands():
        rows = []
        for one in command.params:
            if one.name == "help" or getattr(one, "hidden", False):
                continue
            is_option = one.param_type_name == "option"
            shown = ", ".join([*one.opts, *one.secondary_opts]) if is_option else one.name.upper()
            needed = " Required." if is_option and one.required else ""
            rows.append(f"| `{shown}` | {_cell(getattr(one, 'help', '') or '')}{needed} |")
        parts += [f"## {name}", command.help or ""]
        if rows:
            parts.append("\n".join(["| | |", "|---|---|", *rows]))
    codes = [f"| {code.value} | `{code.name.lower()}` |" for code in ExitCode]
    parts += ["## Exit codes", "\n".join(["| code | name |", "|---|---|", *codes])]
    return _page(parts)


def sdk_page() -> str:
    """Return the page of the SDK."""
    parts = ["# The SDK", _NOTE, "What it is for stands in [sdk.md](../sdk.md)."]
    for name in slipway.__all__:
        if name not in ("__version__", "errors"):
            parts += _describe(f"slipway.{name}", getattr(slipway, name))
    with slipway.Client("http://localhost:1", "slp_x") as client:
        for name in sorted(vars(client)):
            if not name.startswith("_"):
                parts += _describe(f"client.{name}", type(getattr(client, name)))
    for name in slipway.distributed.__all__:
        parts += _describe(f"slipway.distributed.{name}", getattr(slipway.distributed, name))
    parts.append("## Errors")
    for name, error in sorted(vars(errors).items()):
        if inspect.isclass(error) and issubclass(error, errors.SlipwayError):
            parts.append(f"- `slipway.errors.{name}`: {_first(error)}")
    return _page(parts)


def _describe(name: str, thing: Any) -> list[str]:
    parts = [f"## {name}", inspect.getdoc(thing) or ""]
    if inspect.isfunction(thing):
        parts.insert(1, _signature(name, thing))
    elif inspect.isclass(thing):
        for verb, function in sorted(vars(thing).items()):
            if not verb.startswith("_") and inspect.isfunction(function):
                parts += [_signature(f"{name}.{verb}", function), inspect.getdoc(function) or ""]
    elif inspect.ismodule(thing):
        for verb in getattr(thing, "__all__", ()):
            parts += _describe(f"{name}.{verb}", getattr(thing, verb))
    return parts


def _signature(name: str, function: Any) -> str:
    told = str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()")
    told = _HOME.sub("", told)
    return f"```python\n{name}{told}\n```"


def rest_page() -> str:
    """Return the page of the REST API."""
    schema = api.get_openapi_schema()
    parts = [
        "# The REST API",
        _NOTE,
        "A running portal shows it at `/api/v1/docs`, and hands it out as `/api/v1/openapi.json`.",
    ]
    for path, verbs in schema["paths"].items():
        for verb in _VERBS:
            if verb in verbs:
                parts += _operation(verb, path, verbs[verb])
    for name, body in sorted(schema["components"]["schemas"].items()):
        if "properties" not in body:  # an enum or another plain value
            parts += [f"### {name}", _cell(body.get("description", "")), f"{_type(body)}."]
            continue
        rows = [
            f"| `{field}` | {_type(told)} | {_cell(told.get('description', ''))} |"
            for field, told in body["properties"].items()
        ]
        parts += [
            f"### {name}",
            _cell(body.get("description", "")),
            "\n".join(["| field | type | |", "|---|---|---|", *rows]) if rows else "No fields.",
        ]
    return _page(parts)


def _operation(verb: str, path: str, told: Any) -> list[str]:
    parts = [f"## {verb.upper()} {path}", told.get("description", told.get("summary", ""))]
    rows = [
        f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} "
        f"| {_cell(one.get('description', ''))} |"
        for one in told.get("parameters", [])
        if one["in"] != "path"
    ]
    if rows:
        parts.append("\n".join(["| parameter | in | type | |", "|---|---|---|---|", *rows]))
    for kind, content in told.get("requestBody", {}).get("content", {}).items():
        parts.append(f"Takes {_type(content.get('schema', {}))} as `{kind}`.")
    for status, answer in told.get("responses", {}).items():
        for content in answer.get("content", {}).values() if str(status).isdigit() else ():
            parts += [f"Answers {status} with {_type(content.get('schema', {}))}."]
    return parts


def _type(schema: Any) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def settings_page() -> str:
    """Return the page of the settings."""
    rows = []
    for name, field in Env.model_fields.items():
        variable = variable_of(name)
        example = f"`{field.examples[0]}`" if field.examples else ""
        rows.append(f"| `{variable}` | {_cell(field.description or '')} | {example} |")
    return _page(
        [
            "# Settings",
            _NOTE,
            "`manage.py settings --explain` shows them with the values in force.",
            "\n".join(["| variable | meaning | example |", "|---|---|---|", *rows]),
        ]
    )


def _first(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _page(parts: list[str]) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


PAGES = {
    "cli.md": cli_page,
    "sdk.md": sdk_page,
    "rest.md": rest_page,
    "settings.md": settings_page,
}


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, write in PAGES.items():
        (FOLDER / name).write_text(write(), encoding="utf-8")
        print(f"wrote docs/reference/{name}")


if __name__ == "__main__":
    main()
