"""Half a surrogate pair, which JSON may hold and UTF-8 may not, breaks no page and no answer."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.test import Client
from pytest_django import Settings

from portal.core.pagination import encode_cursor
from tests.matrix.actors import Cast
from tests.matrix.bodies import body_for
from tests.matrix.world import values_for
from tests.personas import Api, Personas, json_of
from tests.portal.datasets.pushing import begin, close, fill
from tests.portal.experiments.test_runs_api import write
from tests.portal.experiments.world import make_experiment, make_run
from tests.portal.notebooks.notebooks import code, notebook, send, words
from tests.routes import Route, routes
from tests.turns import asked_all, in_turns, thorough_after

HALF = "\ud83d"
ESCAPED = b"\\ud83d"
SHOWN = "\ufffd"


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = (tmp_path / "artifacts").as_uri()
    settings.SLIPWAY_STORAGE_URL = (tmp_path / "blobs").as_uri()
    settings.DATA_DIR = tmp_path


def _output(kind: str, **fields: Any) -> dict[str, Any]:
    return {"output_type": kind} | fields


def _hostile_notebook(word: str) -> bytes:
    cell = code(f"print('{HALF}{word}')", count=1, tags=["parameters", HALF])
    cell["outputs"] = [
        _output("stream", name=HALF, text=[f"{HALF} printed"]),
        _output("error", ename=HALF, evalue=HALF, traceback=[HALF]),
        _output("display_data", metadata={}, data={f"image/{HALF}": HALF}),
        _output("display_data", metadata={}, data={"text/plain": HALF}),
        _output("display_data", metadata={}, data={"image/png": HALF}),
        _output("display_data", metadata={}, data={"image/png": "iVBO"}),
    ]
    odd = code("1")
    odd["cell_type"] = HALF
    document = json.loads(notebook())
    document["cells"] = [words(f"# {HALF} {word}"), cell, odd]
    document["metadata"]["kernelspec"] = {"name": HALF, "display_name": HALF, "language": HALF}
    return json.dumps(document).encode()


def _client(people: Personas) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(people.bob)
    return client


@pytest.mark.thorough
@pytest.mark.django_db(databases=["default", "tracking"])
def test_artifacts_of_every_kind_are_previewed(people: Personas, tmp_path: Path) -> None:
    run = make_run(make_experiment(people.vision, "odd"), "first")
    client = _client(people)
    text = b'{"a": "' + ESCAPED + b'"} \xed\xa0\xbd \xff'
    files = {f"file.{ending}": text for ending in ("txt", "json", "jsonl", "csv", "tsv", "html")}
    files |= {f"file.{ending}": text for ending in ("md", "svg", "yaml", "parquet", "log")}
    files |= {"MLmodel": text, "walk.ipynb": _hostile_notebook("one")}
    for name, content in files.items():
        write(tmp_path / "artifacts", run, name, content)
    url = f"/p/vision/runs/{run.pk}"
    for name in files:
        page = client.get(f"{url}?path={name}")
        assert page.status_code == 200, name
        assert b"".join(client.get(f"{url}/download?path={name}")) == files[name]
    assert SHOWN in client.get(f"{url}?path=walk.ipynb").content.decode()
    # What a store on a disk may hold, whoever put it there.
    write(tmp_path / "artifacts", run, "broken\udcff\udc80.txt", text)
    write(tmp_path / "artifacts", run, "folder\udcff/inside.txt", text)
    assert client.get(url).status_code == 200
    listed = Api.of(people.bob).get(f"projects/vision/runs/{run.pk}/artifacts")
    assert listed.status_code == 200, listed.content
    for path in ("%ED%A0%BD", "file%ED%A0%BD.txt", "%ff"):
        assert client.get(f"{url}?path={path}").status_code == 200, path
        assert client.get(f"{url}/download?path={path}").status_code == 404, path


@pytest.mark.thorough
@pytest.mark.django_db
def test_a_notebook_is_kept_shown_and_compared(people: Personas) -> None:
    bob, client = Api.of(people.bob), _client(people)
    first, second = _hostile_notebook("one"), _hostile_notebook("two")
    send(bob, "a/odd.ipynb", first)
    saved = json_of(send(bob, "a/odd.ipynb", second))
    at = f"/p/vision/notebooks/files/{saved['id']}"
    for page in ("", "/diff?from=1&to=2", "/branch?version=2", "/run", "?version=1"):
        answer = client.get(f"{at}{page}")
        assert answer.status_code == 200, page
    assert SHOWN in client.get(at).content.decode()
    assert SHOWN in client.get(f"{at}/diff?from=1&to=2").content.decode()
    kept = client.get(f"{at}/download?version=2").content
    assert json.loads(kept) == json.loads(second)
    base = f"projects/vision/notebook-files/{saved['id']}"
    assert bob.get(f"{base}/versions").status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("ending", thorough_after(2, ["jsonl", "csv", "json", "txt"]))
def test_a_dataset_is_checked_and_shown(people: Personas, ending: str) -> None:
    bob, client = Api.of(people.bob), _client(people)
    rows = b'{"name": "' + ESCAPED + b'", "' + ESCAPED + b'": 1, "n": 1}\n'
    rows += b'{"name": 3, "other' + ESCAPED + b'": 1, "n": "' + ESCAPED + b'"}\n'
    draft = begin(bob)
    fill(bob, draft, {f"rows.{ending}": rows})
    version = close(bob, draft, allow_bad_rows=True)
    assert version["state"] in ("ready", "refused"), version
    text = json.dumps(version)
    assert "died" not in text
    assert "bug in Slipway" not in text
    assert client.get("/p/vision/datasets/digits").status_code == 200
    assert client.get("/p/vision/datasets/digits?version=1").status_code == 200


def _bodies() -> list[Any]:
    return [
        pytest.param(route, verb, id=f"{verb} {route.template}")
        for route in routes()
        for verb in ("POST", "PUT", "PATCH")
        if route.operation(verb) is not None
    ]


def _spoiled(value: Any) -> list[Any]:
    """Return the body with half a character in the place of each text and name in turn."""
    if isinstance(value, str):
        return [HALF, f"{value}{HALF}"]
    if isinstance(value, dict):
        spoiled = [{**value, HALF: 1}]
        for name, part in value.items():
            spoiled += [{**value, name: variant} for variant in _spoiled(part)]
        return spoiled
    if isinstance(value, list) and value:
        return [[variant, *value[1:]] for variant in _spoiled(value[0])]
    return [HALF]


@pytest.mark.parametrize(("route", "verb"), _bodies())
def test_no_operation_breaks_on_half_a_character_in_its_body(
    cast: Cast, route: Route, verb: str
) -> None:
    actor = cast.actor(
        "adm" if "administrator" in str(route.policy_for(verb)) else "own", route, verb
    )
    body = body_for(verb, route.template, cast.world, actor.user)
    if isinstance(body, bytes) or actor.token is None:
        return
    path = route.path(**values_for(route, cast.world.own))
    client = Client(raise_request_exception=False)
    headers = {"Authorization": f"Bearer {actor.token}"}
    sent = [
        json.dumps(variant).encode() for variant in _spoiled(orjson.loads(orjson.dumps(body or {})))
    ]
    sent.append(b'{"' + ESCAPED + b'": 1, "' + ESCAPED + b'": 2}')
    for content in in_turns(sent, f"{verb} {route.template}", one_in=4):
        answer = client.generic(
            verb, path, content, content_type="application/json", headers=headers
        )
        assert answer.status_code < 500, (content, answer.content)


_KEYS: list[Any] = [HALF, [HALF, HALF], [0, HALF, HALF], [1, 1.0, HALF], ["2030-01-01", HALF, 1]]


@pytest.mark.parametrize("at", thorough_after(2, range(len(_KEYS))))
def test_no_list_breaks_on_half_a_character_in_its_cursor(cast: Cast, at: int) -> None:
    """In the gate, each list gets every second key."""
    cursor = encode_cursor(json.dumps(_KEYS[at]))
    client = Client(raise_request_exception=False)
    for route in routes() if asked_all() else routes()[at % 2 :: 2]:
        actor = cast.actor("own", route, "GET")
        if not route.is_api or route.operation("GET") is None or actor.token is None:
            continue
        path = route.path(**values_for(route, cast.world.own))
        answer = client.get(
            f"{path}?cursor={cursor}", headers={"Authorization": f"Bearer {actor.token}"}
        )
        assert answer.status_code < 500, (path, getattr(answer, "content", b""))
