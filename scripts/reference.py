"""Write the reference of command line, SDK, REST API and settings, from the code itself.

    make docs

The pages go to docs/reference/, which git ignores, because a committed copy would get out of date.
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
_MODULE_PREFIX = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z])")
_VERBS = ("get", "post", "put", "patch", "delete")


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name, including subcommands."""
    yield from _below("slipway", typer.main.get_command(app))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for verb in inner:
        yield from _below(f"{name} {verb}", inner[verb])


def cli_page() -> str:
    """Return the page about the command line."""
    parts = ["# The command line", _NOTE, "What all commands have in common: [cli.md](../cli.md)."]
    for name, command in commands():
        rows = []
        for parameter in command.params:
            if parameter.name == "help" or getattr(parameter, "hidden", False):
                continue
            is_option = parameter.param_type_name == "option"
            shown = (
                ", ".join([*parameter.opts, *parameter.secondary_opts])
                if is_option
                else parameter.name.upper()
            )
            needed = " Required." if is_option and parameter.required else ""
            rows.append(f"| `{shown}` | {_cell(getattr(parameter, 'help', '') or '')}{needed} |")
        parts += [f"## {name}", command.help or ""]
        if rows:
            parts.append("\n".join(["| | |", "|---|---|", *rows]))
    codes = [f"| {code.value} | `{code.name.lower()}` |" for code in ExitCode]
    parts += ["## Exit codes", "\n".join(["| code | name |", "|---|---|", *codes])]
    return _page(parts)


def sdk_page() -> str:
    """Return the page about the SDK."""
    parts = ["# The SDK", _NOTE, "Introduction: [sdk.md](../sdk.md)."]
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
    signature = str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()")
    signature = _MODULE_PREFIX.sub("", signature)
    return f"```python\n{name}{signature}\n```"


def rest_page() -> str:
    """Return the page about the REST API."""
    schema = api.get_openapi_schema()
    parts = [
        "# The REST API",
        _NOTE,
        "A running portal shows it at `/api/v1/docs` and serves it as `/api/v1/openapi.json`.",
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
            f"| `{field}` | {_type(property_)} | {_cell(property_.get('description', ''))} |"
            for field, property_ in body["properties"].items()
        ]
        parts += [
            f"### {name}",
            _cell(body.get("description", "")),
            "\n".join(["| field | type | |", "|---|---|---|", *rows]) if rows else "No fields.",
        ]
    return _page(parts)


def _operation(verb: str, path: str, operation: Any) -> list[str]:
    parts = [
        f"## {verb.upper()} {path}",
        operation.get("description", operation.get("summary", "")),
    ]
    rows = [
        f"| `{parameter['name']}` | {parameter['in']} | {_type(parameter['schema'])} "
        f"| {_cell(parameter.get('description', ''))} |"
        for parameter in operation.get("parameters", [])
        if parameter["in"] != "path"
    ]
    if rows:
        parts.append("\n".join(["| parameter | in | type | |", "|---|---|---|---|", *rows]))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"Request body: {_type(content.get('schema', {}))} as `{kind}`.")
    for status, response in operation.get("responses", {}).items():
        for content in response.get("content", {}).values() if str(status).isdigit() else ():
            parts += [f"Response {status}: {_type(content.get('schema', {}))}."]
    return parts


def _type(schema: Any) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{option}`" for option in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def settings_page() -> str:
    """Return the page about the settings."""
    rows = []
    for name, field in Env.model_fields.items():
        variable = variable_of(name)
        example = f"`{field.examples[0]}`" if field.examples else ""
        rows.append(f"| `{variable}` | {_cell(field.description or '')} | {example} |")
    return _page(
        [
            "# Settings",
            _NOTE,
            "`manage.py settings --explain` shows them with their current values.",
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
