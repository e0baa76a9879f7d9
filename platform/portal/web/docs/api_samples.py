"""Code samples of the API reference: curl, the SDK and the command for each operation.

The curl sample and its body come from the OpenAPI description. Calls of the SDK and commands are in
`api_samples.toml`; `tests/portal/web/test_api_samples.py` runs each sample and checks that it
requests the operation it is shown for.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.conf import settings

_FILE = Path(__file__).with_name("api_samples.toml")
_SAMPLE_PROJECT = "vision"
_PROJECT_WORD = re.compile(r"\bPROJECT\b")
_SDK_MODULE = re.compile(r"slipway\.(?:schemas\.\w+|resources\.\w+|snapshots)")
# Values of path parameters in samples. Others become their name in capitals: JOB_ID.
_IN_PATH = {
    "alias": "champion",
    "dataset": "customers",
    "endpoint": "churn-api",
    "experiment": "1",
    "group": "burst",
    "kind": "endpoint",
    "model": "churn",
    "name": "HF_TOKEN",
    "node": "gpu-1",
    "number": "2",
    "resource": "storage",
    "run": "8f3a9c5e1d2b4e6f8a7c9b0d1e2f3a4b",
    "schedule": "nightly",
    "server": "analysis",
    "target": "churn-api",
    "team": "growth",
    "tier": "cpu-small",
    "version": "2",
}
_NO_COMMAND = "# The slipway command has no verb for this operation: use curl or Python."
_LINE_LENGTH = 90
_DEEPEST = 6


@dataclass(frozen=True)
class SampleSource:
    """An entry of `api_samples.toml`.

    `python` and `cli` are empty where there is none. `saves` is the file that a download is
    written to, `sends` the one that a body of bytes is read from.
    """

    python: str
    cli: str
    python_first: str = ""
    cli_first: str = ""
    body: str = ""
    query: str = ""
    saves: str = ""
    sends: str = ""


@cache
def sample_sources() -> dict[str, SampleSource]:
    """Return the entries by operationId."""
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {operation_id: SampleSource(**entry) for operation_id, entry in entries.items()}


def samples_of(schema: Mapping[str, Any], project: str | None) -> dict[str, dict[str, str]]:
    """Return the samples of every operation, by "METHOD path": `curl`, `python` and `cli`.

    `schema` is the OpenAPI description. `project` is the slug that samples name.
    """
    samples = {}
    for path, verbs in schema["paths"].items():
        for verb, operation in verbs.items():
            source = sample_sources().get(operation["operationId"])
            if source is not None:
                call = _Call(schema, verb.upper(), path, operation, source)
                samples[f"{verb.upper()} {path}"] = call.samples(project or _SAMPLE_PROJECT)
    return samples


@dataclass(frozen=True)
class _Call:
    """One operation, and what its samples are made of."""

    schema: Mapping[str, Any]
    verb: str
    path: str
    operation: Mapping[str, Any]
    source: SampleSource

    def samples(self, project: str) -> dict[str, str]:
        return {
            "curl": self._curl(project),
            "python": self._python(project),
            "cli": _with_project(f"slipway {self.source.cli}", project)
            if self.source.cli
            else _NO_COMMAND,
        }

    def _address(self, project: str) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name == "project":
                return project
            return _IN_PATH.get(name) or f"{name.removesuffix('_id').upper()}{_id_suffix(name)}"

        address = settings.SLIPWAY_URL + re.sub(r"\{(\w+)\}", value, self.path)
        query = quote(self.source.query, safe="=&/")
        return f"{address}?{query}" if query else address

    def _body(self, project: str) -> Any:
        """Return the JSON body of the sample, None where the operation takes none."""
        content = self.operation.get("requestBody", {}).get("content", {})
        if "application/json" not in content:
            return None
        if self.source.body:
            return json.loads(_with_project(self.source.body, project))
        return example_of(content["application/json"]["schema"], self.schema)

    def _curl(self, project: str) -> str:
        method = "" if self.verb == "GET" else f"-X {self.verb} "
        parts = [f"curl --fail-with-body {method}{shlex.quote(self._address(project))}"]
        parts.append('-H "Authorization: Bearer $SLIPWAY_TOKEN"')
        body = self._body(project)
        if body is not None:
            parts.append('-H "Content-Type: application/json"')
            parts.append(f"-d {shlex.quote(json.dumps(body, ensure_ascii=False))}")
        if self.source.sends:
            parts.append('-H "Content-Type: application/octet-stream"')
            parts.append(f"--data-binary @{self.source.sends}")
        if self.source.saves:
            parts.append(f"-o {self.source.saves}")
        return " \\\n  ".join(parts)

    def _python(self, project: str) -> str:
        if not self.source.python:
            return self._httpx(project)
        code = _PROJECT_WORD.sub(json.dumps(project), self.source.python)
        modules = sorted(set(_SDK_MODULE.findall(code)))
        lines = [f"import {name}" for name in ["slipway", *modules]]
        lines += ["", f'with slipway.Client("{settings.SLIPWAY_URL}") as client:']
        lines += [f"    {line}" for line in self._statement(code)]
        return "\n".join(lines)

    def _statement(self, code: str) -> list[str]:
        """Return the lines that do the call and show its result."""
        if code.startswith("for "):
            header, _, body = code.partition(": ")
            return [f"{header}:", f"    {body}"]
        if self.source.saves:
            return [
                f'with {code} as download, open("{self.source.saves}", "wb") as file:',
                "    for chunk in download:",
                "        file.write(chunk)",
            ]
        if self._has_no_content():
            return _folded(code)
        if self._is_page():
            return [f"for item in {code}:", "    print(item)"]
        return (
            _folded(f"print({code})")
            if len(code) < _LINE_LENGTH
            else [
                *_folded(f"answer = {code}"),
                "print(answer)",
            ]
        )

    def _has_no_content(self) -> bool:
        return HTTPStatus.NO_CONTENT in self.operation["responses"]

    def _is_page(self) -> bool:
        content = self.operation["responses"].get(HTTPStatus.OK, {}).get("content", {})
        reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
        answer = self.schema["components"]["schemas"].get(reference.rpartition("/")[2], {})
        return "next_cursor" in answer.get("properties", {})

    def _httpx(self, project: str) -> str:
        arguments = [
            json.dumps(self.verb),
            json.dumps(self._address(project)),
            'headers={"Authorization": f"Bearer {os.environ[\'SLIPWAY_TOKEN\']}"}',
        ]
        body = self._body(project)
        if body is not None:
            arguments.append(f"json={body!r}")
        if self.source.sends:
            arguments.append(f'content=open("{self.source.sends}", "rb").read()')
        lines = ["import os", "", "import httpx", "", "response = httpx.request("]
        lines += [f"    {argument}," for argument in arguments]
        lines += [")", "response.raise_for_status()"]
        if self.source.saves:
            lines.append(f'open("{self.source.saves}", "wb").write(response.content)')
        elif not self._has_no_content():
            lines.append("print(response.json())")
        return "\n".join(lines)


def _id_suffix(name: str) -> str:
    return "" if name == "digest" else "_ID"


def _with_project(text: str, project: str) -> str:
    return _PROJECT_WORD.sub(project, text)


def _folded(code: str) -> list[str]:
    """Return a call in one line, or its arguments in lines of their own where it is long."""
    if len(code) < _LINE_LENGTH:
        return [code]
    start, _, arguments = code.partition("(")
    return [f"{start}(", f"    {arguments.removesuffix(')')}", ")"]


def example_of(schema: Mapping[str, Any], description: Mapping[str, Any], depth: int = 0) -> Any:
    """Return an example of a JSON schema: its own one, else its required fields."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return example_of(description["components"]["schemas"][name], description, depth + 1)
    for key in ("example", "const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("examples"):
        return schema["examples"][0]
    if schema.get("enum"):
        return schema["enum"][0]
    choices = [choice for choice in schema.get("anyOf", []) if choice.get("type") != "null"]
    if choices:
        return example_of(choices[0], description, depth + 1)
    kind = schema.get("type")
    if kind == "object" and depth < _DEEPEST:
        required = schema.get("required", [])
        fields = schema.get("properties", {})
        return {name: example_of(fields[name], description, depth + 1) for name in required}
    if kind == "string":
        return "text"
    return {"integer": 1, "number": 1.0, "boolean": True, "array": []}.get(str(kind), {})
