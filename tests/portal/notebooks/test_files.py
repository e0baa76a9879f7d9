"""Every save of a notebook is a version: kept once, told apart, brought back."""

import json
from typing import Any

import pytest

from portal.accounts.models import AuditEvent
from portal.storage.models import Blob
from tests.personas import Api, Personas, json_of
from tests.portal.notebooks.notebooks import UPLOAD, code, notebook, send, words
from tests.portal.workloads.machines import Machine

FIRST = notebook(words("# Größe"), code("print(1)", count=1, prints="1\n"))
SECOND = notebook(words("# Größe"), code("print(2)", count=2, prints="2\n"))


def _save(api: Api, content: bytes, path: str = "reports/churn.ipynb") -> Any:
    answer = send(api, path, content)
    assert answer.status_code == 200, answer.content
    return json_of(answer)


def _versions(api: Api, notebook_id: str) -> list[Any]:
    response = json_of(api.get(f"projects/vision/notebook-files/{notebook_id}/versions"))
    items: list[Any] = response["items"]
    return items


def _content(api: Api, notebook_id: str, number: int, query: str = "") -> bytes:
    place = f"projects/vision/notebook-files/{notebook_id}/versions/{number}/content{query}"
    answer = api.get(place)
    assert answer.status_code == 200, answer.content
    return answer.content


@pytest.mark.postgres
def test_a_save_is_a_version_that_comes_back_byte_for_byte(bob: Api) -> None:
    saved = _save(bob, FIRST)
    assert saved["path"] == "reports/churn.ipynb"
    assert saved["badge"] == "unverified"
    assert saved["latest"]["number"] == 1
    assert saved["latest"]["cells"] == 2
    assert _content(bob, saved["id"], 1) == FIRST


def test_the_same_again_makes_no_version_and_no_bytes(bob: Api) -> None:
    _save(bob, FIRST)
    before = Blob.objects.count()
    assert _save(bob, FIRST)["latest"]["number"] == 1
    assert Blob.objects.count() == before == 2


def test_running_again_changes_only_the_outputs(bob: Api) -> None:
    first = _save(bob, FIRST)["latest"]
    again = notebook(words("# Größe"), code("print(1)", count=7, prints="1\n"))
    other = _save(bob, again)["latest"]
    assert other["number"] == 2
    assert other["source_digest"] == first["source_digest"]
    assert other["outputs_digest"] != first["outputs_digest"]


def test_the_source_can_be_had_without_outputs(bob: Api) -> None:
    file = _save(bob, FIRST)
    bare = json.loads(_content(bob, file["id"], 1, "?outputs=false"))
    assert bare["cells"][1]["outputs"] == []
    assert bare["cells"][1]["execution_count"] is None


@pytest.mark.postgres
def test_restoring_makes_a_new_version_and_keeps_those_between(bob: Api) -> None:
    file = _save(bob, FIRST)
    _save(bob, SECOND)
    answer = bob.post(f"projects/vision/notebook-files/{file['id']}/restore", {"version": 1})
    assert answer.status_code == 200, answer.content
    versions = [
        (version["number"], version["origin"], version["origin_version"])
        for version in _versions(bob, file["id"])
    ]
    assert versions == [(3, "restore", 1), (2, "save", None), (1, "save", None)]
    assert _content(bob, file["id"], 3) == FIRST
    assert _content(bob, file["id"], 2) == SECOND


@pytest.mark.postgres
def test_a_branch_is_a_notebook_of_its_own(bob: Api) -> None:
    file = _save(bob, FIRST)
    place = f"projects/vision/notebook-files/{file['id']}/branch"
    made = bob.post(place, {"path": "try/other.ipynb", "version": 1})
    assert made.status_code == 201, made.content
    branch = json_of(made)
    assert branch["latest"]["origin"] == "branch"
    assert branch["latest"]["origin_path"] == "reports/churn.ipynb"
    assert _content(bob, branch["id"], 1) == FIRST
    taken = bob.post(place, {"path": "try/other.ipynb"})
    assert taken.status_code == 409
    assert json_of(taken)["field"] == "path"


@pytest.mark.parametrize("path", ["personal/x.ipynb", ".slipway/x.ipynb", ".slipway/a/b.ipynb"])
def test_names_that_jupyterlab_shows_otherwise_are_refused(bob: Api, path: str) -> None:
    saved = _save(bob, FIRST)
    place = f"projects/vision/notebook-files/{saved['id']}/branch"
    for answer in (send(bob, path, FIRST), bob.post(place, {"path": path, "version": 1})):
        assert answer.status_code == 422, answer.content
        problem = json_of(answer)
        assert (problem["code"], problem["field"]) == ("reserved_name", "path")
        assert "reports/" in problem["next_step"]
    assert len(json_of(bob.get("projects/vision/notebook-files"))["items"]) == 1
    for near in ("personal.ipynb", "a/personal/x.ipynb", "personally/x.ipynb"):
        _save(bob, FIRST, near)


@pytest.mark.parametrize(
    ("path", "content", "field"),
    [
        ("../up.ipynb", FIRST, "path"),
        ("/etc/x.ipynb", FIRST, "path"),
        ("a//b.ipynb", FIRST, "path"),
        ("a\\b.ipynb", FIRST, "path"),
        ("a.ipynb", b"not json", "content"),
        ("a.ipynb", b"[" * 100_000, "content"),
        ("a.ipynb", b'{"cells": 1, "nbformat": 4}', "content"),
        ("a.ipynb", b'{"cells": [], "nbformat": 3}', "content"),
        ("a.ipynb", b'{"cells": [1], "nbformat": 4}', "content"),
    ],
)
def test_what_is_no_notebook_is_refused(bob: Api, path: str, content: bytes, field: str) -> None:
    answer = send(bob, path, content)
    assert answer.status_code == 422, answer.content
    assert json_of(answer)["field"] == field
    assert json_of(answer)["next_step"]
    assert json_of(bob.get("projects/vision/notebook-files"))["items"] == []


def test_cells_of_any_shape_are_kept_as_they_are(bob: Api) -> None:
    odd = (
        b'{"cells": [{"cell_type": "code", "source": 7, "outputs": null, "metadata": null},'
        b'{"cell_type": "code", "source": "\\ud800", "metadata": {"tags": "parameters"}}],'
        b'"metadata": {"widgets": {"a": 1}}, "nbformat": 4, "nbformat_minor": 2}'
    )
    file = _save(bob, odd)
    back = json.loads(_content(bob, file["id"], 1))
    assert back["metadata"]["widgets"] == {"a": 1}
    assert back["cells"][0]["source"] == 7


def test_a_stranger_sees_nothing_and_a_viewer_changes_nothing(people: Personas, bob: Api) -> None:
    file = _save(bob, FIRST)
    charlie, vera = Api.of(people.charlie), Api.of(people.vera)
    assert charlie.get(f"projects/vision/notebook-files/{file['id']}").status_code == 404
    assert send(charlie, "a.ipynb", FIRST).status_code == 404
    assert send(charlie, "a.ipynb", FIRST, project="other").status_code == 200
    foreign = charlie.get(f"projects/other/notebook-files/{file['id']}")
    assert foreign.status_code == 404
    assert send(vera, "a.ipynb", SECOND).status_code == 403
    assert vera.get(f"projects/vision/notebook-files/{file['id']}").status_code == 200


def test_a_save_is_told_in_the_audit_log(bob: Api) -> None:
    file = _save(bob, FIRST)
    event = AuditEvent.objects.filter(verb="notebook.save").get()
    assert event.target_id == file["id"]
    assert event.target_label == "reports/churn.ipynb"


def test_a_body_of_another_type_is_refused(bob: Api) -> None:
    where = "projects/vision/notebook-files?path=a.ipynb"
    answer = bob.call("post", where, FIRST, content_type="text/plain")
    assert answer.status_code == 415
    assert UPLOAD in json_of(answer)["detail"]


def test_jobs_of_notebooks_with_long_names_stay_apart(bob: Api, machine: Machine) -> None:
    names = set()
    for letter in "ab":
        saved = _save(bob, FIRST, f"{'experiment_' * 8}{letter}.ipynb")
        for verb in ("run", "verify"):
            made = bob.post(f"projects/vision/notebook-files/{saved['id']}/{verb}", {})
            assert made.status_code == 201, made.content
            job = json_of(bob.get(f"projects/vision/jobs/{json_of(made)['workload']}"))
            names.add(job["workload"]["name"])
    assert len(names) == 4
    assert all("the beginning of 89 characters" in name for name in names)
