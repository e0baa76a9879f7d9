"""Samples of the API reference: each requests the operation it is shown for."""

import ast
import contextlib
import inspect
import json
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
from pydantic import BaseModel, ValidationError
from pytest_django import Settings

import slipway
import slipway.schemas.pipelines
import slipway.schemas.registry
import slipway.schemas.training
import slipway.snapshots
from portal.api.root import api
from portal.web.docs.api_samples import SampleSource, sample_sources, samples_of
from slipway.cli.main import app, main
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of

SCHEMA = api.get_openapi_schema()
OPERATIONS = {
    operation["operationId"]: (verb.upper(), path)
    for path, verbs in SCHEMA["paths"].items()
    for verb, operation in verbs.items()
}
BY_SOURCE = sorted(sample_sources().items())
FILES = {
    "README.md": "# Churn",
    "analysis.ipynb": '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
    "customers.csv": "age,left\n31,0\n",
    "labels.csv": "prediction_id,value\nprd_01JZ8Q4T6V9W2X5Y7B1C3D5F8H,1\n",
    "notes.txt": "notes",
    "pieces.bin": "pieces",
    "report.json": '{"title": "Week 12", "blocks": []}',
    "snapshot.tar.gz": "archive",
    "packages.txt": "scikit-learn==1.7.0\n",
    "train.py": "print('training')\n",
    "digits.yaml": "steps: {train: {script: train.py}}\n",
}
# Operations without a sample in Python, or without a command. A new operation belongs here only
# if neither the SDK nor the command line has it.
WITHOUT_SDK = 30
WITHOUT_COMMAND = 87


@dataclass
class Recorder:
    """A server that refuses every request and remembers its operation."""

    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)

    def operation(self) -> str:
        """Return the operationId of the first request since the last call, or what it was."""
        if not self.requests:
            return "no request"
        verb, path = self.requests[0]
        self.requests.clear()
        matching = [name for name, known in OPERATIONS.items() if _is(known, verb, path)]
        # `runs/compare` is an operation of its own, not the run "compare".
        return min(
            matching, key=lambda name: OPERATIONS[name][1].count("{"), default=f"{verb} {path}"
        )


def _is(known: tuple[str, str], verb: str, path: str) -> bool:
    pattern = re.sub(r"\{\w+\}", "[^/]+", known[1])
    return known[0] == verb and re.fullmatch(pattern, path) is not None


@pytest.fixture
def recorder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> Iterator[Recorder]:
    """A recorder that the SDK and the command line take for the portal, and a folder of files."""
    record = Recorder()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            record.requests.append((self.command, urlsplit(self.path).path))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b'{"title": "Not found", "status": 404, "detail": "None.", "code": "not_found"}'
            self.send_response(404)
            self.send_header("Content-Type", "application/problem+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Write nothing to the output of tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    record.url = f"http://127.0.0.1:{server.server_port}"
    settings.SLIPWAY_URL = record.url
    monkeypatch.setenv("SLIPWAY_URL", record.url)
    monkeypatch.setenv("SLIPWAY_TOKEN", "slp_sample")
    monkeypatch.setenv("SLIPWAY_CONFIG_DIR", str(tmp_path / "config"))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield record
    server.shutdown()
    thread.join()
    server.server_close()


def _samples() -> dict[str, dict[str, str]]:
    """Return the samples by operationId."""
    samples = samples_of(SCHEMA, "vision")
    return {name: samples[f"{verb} {path}"] for name, (verb, path) in OPERATIONS.items()}


def test_every_operation_has_an_entry_and_the_rest_is_counted() -> None:
    sources = sample_sources()
    assert set(sources) == set(OPERATIONS)
    assert sum(not source.python for source in sources.values()) == WITHOUT_SDK
    assert sum(not source.cli for source in sources.values()) == WITHOUT_COMMAND


def _call_of(source: SampleSource) -> ast.Call:
    code = re.sub(r"\bPROJECT\b", '"vision"', source.python)
    tree = ast.parse(code.partition(": ")[0] + ": pass" if code.startswith("for ") else code)
    statement = tree.body[0]
    call = statement.iter if isinstance(statement, ast.For) else getattr(statement, "value", None)
    assert isinstance(call, ast.Call)
    return call


def test_calls_of_the_sdk_fit_the_signatures_of_its_methods() -> None:
    with slipway.Client("http://localhost:1", "slp_sample") as client:
        for name, source in BY_SOURCE:
            if not source.python:
                continue
            call = _call_of(source)
            method: Callable[..., Any] = eval(  # noqa: S307  (our own file)
                ast.unparse(call.func), {"client": client}
            )
            keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg}
            try:
                inspect.signature(method).bind(*call.args, **keywords)
            except TypeError as error:
                pytest.fail(f"{name}: {error}")


def test_commands_are_parsed_by_the_command_line(recorder: Recorder) -> None:
    root = typer.main.get_command(app)
    wrong = []
    for name, source in BY_SOURCE:
        if source.cli:
            try:
                _parse(root, shlex.split(source.cli.replace("PROJECT", "vision")))
            except typer.TyperException as error:
                wrong.append(f"{name}: {error.format_message()}")
    assert wrong == [], "\n".join(wrong)


def _parse(command: Any, arguments: list[str], parent: Any = None) -> Any:
    """Return the innermost command of a line, after parsing its options and arguments."""
    name = arguments[0] if parent is not None else "slipway"
    rest = arguments[1:] if parent is not None else arguments
    context = command.make_context(name, list(rest), parent=parent)
    if not hasattr(command, "get_command"):
        return command
    inner_name, inner, inner_rest = command.resolve_command(
        context, [*context._protected_args, *context.args]
    )
    return _parse(inner, [inner_name, *inner_rest], context)


def test_bodies_of_samples_are_valid(settings: Settings) -> None:
    settings.SLIPWAY_URL = "http://portal.example"
    models = {model.__name__: model for model in _subclasses(BaseModel)}
    checked = 0
    wrong = []
    for name, texts in _samples().items():
        words = shlex.split(texts["curl"])
        verb, path = OPERATIONS[name]
        operation = SCHEMA["paths"][path][verb.lower()]
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        assert (content is not None) == ("-d" in words), name
        if content is not None and "$ref" in content["schema"]:
            model = models[content["schema"]["$ref"].rpartition("/")[2]]
            try:
                model.model_validate_json(words[words.index("-d") + 1])
            except ValidationError as error:
                wrong.append(f"{name}: {error}")
            checked += 1
    assert wrong == [], "\n".join(wrong)
    assert checked > 60


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    children: list[type[Any]] = kind.__subclasses__()
    for child in children:
        yield child
        yield from _subclasses(child)


def test_curl_samples_name_the_operation_and_the_token(settings: Settings) -> None:
    settings.SLIPWAY_URL = "http://portal.example"
    for name, texts in _samples().items():
        words = shlex.split(texts["curl"])
        verb = words[words.index("-X") + 1] if "-X" in words else "GET"
        url = urlsplit(next(word for word in words if word.startswith("http://portal.example/")))
        assert _is(OPERATIONS[name], verb, url.path), name
        assert '"Authorization: Bearer $SLIPWAY_TOKEN"' in texts["curl"]
        required = {
            parameter["name"]
            for parameter in SCHEMA["paths"][OPERATIONS[name][1]][verb.lower()]["parameters"]
            if parameter["in"] == "query" and parameter.get("required")
        }
        assert all(f"{parameter}=" in url.query for parameter in required), name


def test_python_samples_request_their_operation(recorder: Recorder) -> None:
    wrong = []
    for name, texts in _samples().items():
        with contextlib.suppress(Exception):
            exec(compile(texts["python"], name, "exec"), {})  # noqa: S102  (our own file)
        expected = sample_sources()[name].python_first or name
        requested = recorder.operation()
        if requested != expected:
            wrong.append(f"{name}: {requested}")
    assert wrong == [], "\n".join(wrong)


@pytest.mark.thorough
def test_commands_request_their_operation(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    root = typer.main.get_command(app)
    for name, source in BY_SOURCE:
        if not source.cli:
            continue
        words = shlex.split(source.cli.replace("PROJECT", "vision"))
        options = {option for param in _parse(root, words).params for option in param.opts}
        monkeypatch.setattr("sys.stdin", StringIO("secret\n"))
        main([*words, "--yes"] if "--yes" in options else words)
        expected = source.cli_first or name
        requested = recorder.operation()
        if requested != expected:
            wrong.append(f"{name}: {requested} {capsys.readouterr().err[-90:]!r}")
    assert wrong == [], "\n".join(wrong)


def test_the_reference_embeds_samples_for_the_project_of_the_reader(
    people: Personas, browse: Browse
) -> None:
    page = html_of(browse(people.alice).get("/api/v1/docs"))
    embedded = re.search(r'<script id="code-samples" type="application/json">(.*?)</script>', page)
    assert embedded
    samples = json.loads(embedded[1])
    assert len(samples) == len(OPERATIONS)
    sample = samples["GET /api/v1/projects/{project}/jobs"]
    assert "/api/v1/projects/vision/jobs" in sample["curl"]
    assert 'client.jobs.list(project="vision")' in sample["python"]
    assert sample["cli"] == "slipway job list --project vision"
    assert "other" not in sample["curl"]
