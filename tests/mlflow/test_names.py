"""Names that deceive or do not fit, and keys that stand twice, are refused alike at every door."""

import io
import json
import tarfile
from collections.abc import Callable
from urllib.parse import quote

import httpx
import pytest

from portal.api.mlflow.routes import ROUTES
from slipway.errors import InvalidInput
from slipway.snapshots.limits import check_names
from tests.tracking import Rest, TrackingPortal

pytestmark = pytest.mark.postgres

BAD = {
    "256 bytes": "n" * 256,
    "256 bytes of UTF-8": "é" * 128,
    "a text-direction mark": "a\u202eb",
    "an isolate": "a\u2066b",
    "a zero-width space": "a\u200bb",
    "a soft hyphen": "a\u00adb",
    "a byte order mark": "\ufeffab",
    "a line separator": "a\u2028b",
    "an escape": "a\x1bb",
    "a C1 control": "a\x9bb",
    "DEL": "a\x7fb",
    "a Hangul filler": "a\u3164b",
    "a filler before consonants": "\u115fa",
    "a filler before vowels": "a\u1160",
    "a halfwidth filler": "a\uffa0b",
    "a grapheme joiner": "a\u034fb",
    "a Khmer inherent vowel": "a\u17b4b",
    "a Mongolian variation selector": "a\u180bb",
    "a variation selector": "a\ufe00b",
    "the emoji selector after a letter": "a\ufe0fb",
    "the emoji selector at the start": "\ufe0fa",
    "the emoji selector twice": "❤\ufe0f\ufe0f",
    "the emoji selector after a digit": "1\ufe0f.txt",
    "a supplementary selector": "a\U000e0100b",
    "a reserved ignorable": "a\u2065b",
    "a blank of Braille": "a\u2800b",
    "a null notehead": "a\U0001d159b",
    "a Khitan filler": "a\U00016fe4b",
    "a blank hieroglyph": "a\U00013441b",
}
GOOD = (
    *("n" * 255, "é" * 127, "日本語.txt", "क्\u200dष", "👩\u200d🔬.png", "a b", "ü.bin"),
    *("❤\ufe0f.png", "1\ufe0f\u20e3", "🏳\ufe0f\u200d🌈", "3.04\u202fPM.png", "가나다.csv", "⠿"),
)
# Characters that no name of an object may have, too; the others are refused in names of files.
ALSO_IN_TEXT = ("a text-direction mark", "an isolate", "an escape", "a C1 control", "DEL")


class Doors:
    """Every way in which a file gets a name, as a call that returns the answer."""

    def __init__(self, tracking: TrackingPortal) -> None:
        self.rest = tracking.client("alice")
        self.slug = tracking.projects["alice"]
        self.api = tracking.portal.client("alice")
        self.api.base_url = f"{self.api.base_url}projects/{self.slug}/"
        self.run = self.rest.new_run()
        uri = self.rest.get("runs/get", run_id=self.run)["run"]["info"]["artifact_uri"]
        self.artifacts = str(uri).removeprefix("mlflow-artifacts:")
        made = self.api.post("datasets", json={"name": f"names-{self.run[:8]}"})
        assert made.status_code == 201, made.text
        self.dataset = made.json()["name"]

    def all(self) -> dict[str, Callable[[str], httpx.Response]]:
        """Return the calls by what they do."""
        return {
            "write an artifact": lambda name: self._artifact("PUT", name),
            "write an artifact into a folder": lambda name: self._artifact("PUT", f"{name}/x"),
            "read an artifact": lambda name: self._artifact("GET", name),
            "list artifacts": lambda name: self.rest.call(
                "GET", "artifacts/list", params={"run_id": self.run, "path": name}
            ),
            "list artifacts by the API": lambda name: self.api.get(
                f"runs/{self.run}/artifacts", params={"path": name}
            ),
            "save a notebook": lambda name: self.upload(
                "notebook-files", b"{}", path=f"{name}/x.ipynb"
            ),
            "upload a file": lambda name: self.upload("files", b"x", name=name),
        }

    def upload(self, address: str, content: bytes, **query: str) -> httpx.Response:
        """Send bytes to the API."""
        headers = {"Content-Type": "application/octet-stream"}
        return self.api.post(address, params=query, content=content, headers=headers)

    def _artifact(self, verb: str, name: str) -> httpx.Response:
        path = f"/api/2.0/mlflow-artifacts/artifacts{self.artifacts}/{quote(name)}"
        return self.rest.call(verb, path, content=b"x" if verb == "PUT" else None)


@pytest.fixture(scope="module")
def doors(tracking: TrackingPortal) -> Doors:
    return Doors(tracking)


@pytest.mark.thorough
def test_names_of_files_are_refused_alike(doors: Doors) -> None:
    odd = {}
    for what, bad in BAD.items():
        for door, call in doors.all().items():
            answer = call(bad)
            words = answer.text
            if answer.status_code not in (400, 422) or not ("U+" in words or "255" in words):
                odd[f"{door}: {what}"] = (answer.status_code, words[:200])
        with pytest.raises(InvalidInput):
            check_names([f"folder/{bad}"])
    assert not odd


def test_names_that_people_write_are_accepted(doors: Doors) -> None:
    calls = doors.all()
    for name in GOOD:
        assert calls["write an artifact"](name).status_code == 200, name
        assert calls["read an artifact"](name).content == b"x"
        assert calls["list artifacts"]("").status_code == 200
        check_names([name])


def test_names_of_objects_are_refused_by_mlflow_as_by_the_api(doors: Doors) -> None:
    rest, run = doors.rest, doors.run
    for what in ALSO_IN_TEXT:
        bad = BAD[what]
        for path, body, field in (
            ("experiments/create", {"name": bad}, "name"),
            ("experiments/update", {"experiment_id": "0", "new_name": bad}, "new_name"),
            ("registered-models/create", {"name": bad}, "name"),
            ("runs/create", {"experiment_id": "0", "run_name": bad}, "run_name"),
            ("runs/set-tag", {"run_id": run, "key": bad, "value": "x"}, "key"),
            ("runs/log-parameter", {"run_id": run, "key": bad, "value": "x"}, "key"),
            (
                "runs/log-batch",
                {"run_id": run, "metrics": [{"key": bad, "value": 1, "timestamp": 1, "step": 1}]},
                "key",
            ),
        ):
            for ascii_only in (True, False):
                answer = _post(rest, path, json.dumps(body, ensure_ascii=ascii_only))
                assert answer.status_code == 400, (path, what, answer.text)
                assert f"The {field} has the character U+" in answer.json()["message"]
        refused = doors.api.post("models", json={"name": bad})
        assert refused.status_code == 422, refused.text
        assert refused.json()["field"] == "name"


def test_a_query_key_that_stands_twice_is_refused_by_every_operation(doors: Doors) -> None:
    accepted = {}
    for route in ROUTES:
        path = route.path
        for name in route.parameters:
            path = path.replace(f"<{name}>", "x").replace(f"<path:{name}>", "1/x/artifacts/x")
        for key in ("path", "metric_key", "runId", "name"):
            answer = doors.rest.call(route.method, f"{path}?{key}=a&page_token=x&{key}=b")
            if answer.status_code != 400 or f"has {key} more than once" not in answer.text:
                accepted[f"{route.method} {path} {key}"] = answer.text[:200]
    assert not accepted


def test_a_run_is_named_once_in_a_query(doors: Doors) -> None:
    other = doors.rest.new_run()
    for query in (
        f"run_id={doors.run}&run_id={other}",
        f"run_id={doors.run}&run_id={doors.run}",
        f"run_id={doors.run}&run_uuid={other}",
        f"run_uuid={doors.run}&run_id={other}",
    ):
        for path in ("runs/get", "artifacts/list", "metrics/get-history"):
            answer = doors.rest.call("GET", f"{path}?{query}&metric_key=x")
            assert answer.status_code == 400, (path, query, answer.text)
            assert "run_id" in answer.json()["message"]
    same = f"runs/get?run_id={doors.run}&run_uuid={doors.run}"
    assert doors.rest.call("GET", same).status_code == 200


def test_a_list_in_a_query_has_several_values(doors: Doors) -> None:
    other = doors.rest.new_run()
    bulk = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
    for address in (
        f"metrics/get-history-bulk-interval?run_ids={doors.run}&run_ids={other}&metric_key=x",
        "experiments/search?max_results=5&order_by=name&order_by=last_update_time",
        "registered-models/search?order_by=name&order_by=last_updated_timestamp",
        f"{bulk}?run_id={doors.run}&run_id={other}&metric_key=x",
    ):
        answer = doors.rest.call("GET", address)
        assert answer.status_code == 200, (address, answer.text)


def _post(rest: Rest, path: str, body: str) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    return rest.call("POST", path, content=body.encode(), headers=headers)


def test_every_operation_of_mlflow_refuses_a_key_that_stands_twice(doors: Doors) -> None:
    body = '{"a:b": "c:d\\"", "run_id": "x", "inside": {"twice": 1, "once": 2, "twice": 3}}'
    accepted = {}
    for route in ROUTES:
        if route.streams or route.method == "GET":
            continue
        path = route.path
        for name in route.parameters:
            path = path.replace(f"<{name}>", "x").replace(f"<path:{name}>", "1/x/artifacts/x")
        headers = {"Content-Type": "application/json"}
        answer = doors.rest.call(route.method, path, content=body.encode(), headers=headers)
        if answer.status_code != 400 or "'twice' appears twice" not in answer.text:
            accepted[f"{route.method} {path}"] = answer.text[:200]
    assert not accepted


def test_keys_that_only_look_alike_pass(doors: Doors) -> None:
    body = {
        "run_id": doors.run,
        "params": [{"key": "a:b", "value": 'x":"y'}, {"key": "a", "value": "\\"}],
    }
    for text in (json.dumps(body), json.dumps(body, indent=2), json.dumps(body, indent=2) + " : "):
        answer = _post(doors.rest, "runs/log-batch", text)
        assert answer.status_code == (200 if text.endswith("}") else 400), answer.text


def test_a_notebook_with_a_key_twice_is_refused(doors: Doors) -> None:
    content = b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [], "cells": []}'
    answer = doors.upload("notebook-files", content, path="twice.ipynb")
    assert answer.status_code == 422, answer.text
    assert "'cells' appears twice" in answer.json()["detail"]


@pytest.mark.thorough
def test_archives_and_datasets_refuse_the_same_names(doors: Doors) -> None:
    draft = doors.api.post(f"datasets/{doors.dataset}/versions", json={"note": ""})
    assert draft.status_code == 201, draft.text
    files = f"datasets/{doors.dataset}/versions/{draft.json()['id']}/files"
    for what, bad in BAD.items():
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.addfile(tarfile.TarInfo(f"code/{bad}"))
        snapshot = doors.upload("snapshots", packed.getvalue())
        assert snapshot.status_code in (413, 422), (what, snapshot.status_code, snapshot.text)
        file = {"path": f"folder/{bad}", "size_bytes": 0, "pieces": []}
        added = doors.api.post(files, json={"files": [file]})
        assert added.status_code == 422, (what, added.text)
        assert "U+" in added.text or "255" in added.text, added.text
