"""Notebooks are deleted with their versions, brought back for three days, and then freed."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from portal.accounts.models import AuditEvent
from portal.notebooks.housekeeping import free_deleted
from portal.notebooks.models import Content, NotebookFile, NotebookVersion
from portal.storage.models import StoredFile
from tests.personas import Api, Personas, json_of
from tests.portal.notebooks.notebooks import code, notebook, send, words

pytestmark = pytest.mark.postgres

PATH = "reports/churn.ipynb"
FILES = "projects/vision/notebook-files"
FIRST = notebook(words("# One"), code("print(1)", count=1, prints="1\n"))
SECOND = notebook(words("# Two"), code("print(2)", count=2, prints="2\n"))


@pytest.fixture
def saved(bob: Api) -> str:
    """The id of a notebook with two versions."""
    send(bob, PATH, FIRST)
    return str(json_of(send(bob, PATH, SECOND))["id"])


def paths(api: Api, query: str = "") -> list[str]:
    items: list[Any] = json_of(api.get(f"{FILES}{query}"))["items"]
    return [file["path"] for file in items]


def let_pass(**span: float) -> None:
    """Let all deletions be older."""
    for file in NotebookFile.objects.exclude(deleted_at=None):
        assert file.deleted_at is not None
        past = file.deleted_at - timedelta(**span)
        NotebookFile.objects.filter(pk=file.pk).update(deleted_at=past)


def test_a_deletion_hides_everything_and_is_taken_back(bob: Api, saved: str) -> None:
    assert bob.delete(f"{FILES}/{saved}").status_code == 204
    assert paths(bob) == []
    assert paths(bob, "?deleted=true") == [PATH]
    for way in ("", "/versions", "/versions/1/content", "/runs"):
        assert bob.get(f"{FILES}/{saved}{way}").status_code == 404, way
    assert bob.post(f"{FILES}/{saved}/restore", {"version": 1}).status_code == 404
    assert bob.delete(f"{FILES}/{saved}").status_code == 404
    back = bob.post(f"{FILES}/{saved}/undelete")
    assert back.status_code == 200, back.content
    assert (json_of(back)["latest"]["number"], json_of(back)["deleted_at"]) == (2, None)
    assert bob.get(f"{FILES}/{saved}/versions/1/content").content == FIRST
    assert bob.post(f"{FILES}/{saved}/undelete").status_code == 200, "again changes nothing"
    verbs = AuditEvent.objects.filter(target_id=saved, verb__contains="delete").order_by("id")
    assert [event.verb for event in verbs] == ["notebook.file_delete", "notebook.file_undelete"]


def test_a_save_at_the_path_begins_another_notebook(bob: Api, saved: str) -> None:
    bob.delete(f"{FILES}/{saved}")
    fresh = json_of(send(bob, PATH, FIRST))
    assert (fresh["id"] == saved, fresh["latest"]["number"]) == (False, 1)
    assert paths(bob, "?deleted=true") == [], "its path is taken"
    refused = bob.post(f"{FILES}/{saved}/undelete")
    assert (refused.status_code, json_of(refused)["code"]) == (409, "path_taken")
    assert json_of(refused)["next_step"]
    bob.delete(f"{FILES}/{fresh['id']}")
    assert bob.post(f"{FILES}/{saved}/undelete").status_code == 200


def test_readers_and_strangers_delete_nothing(people: Personas, saved: str) -> None:
    for person, status in ((people.vera, 403), (people.charlie, 404)):
        api = Api.of(person)
        assert api.delete(f"{FILES}/{saved}").status_code == status
        assert api.post(f"{FILES}/{saved}/undelete").status_code == status
    assert Api.of(people.alice).delete(f"{FILES}/{saved}").status_code == 204


def test_after_three_days_it_is_freed_and_what_others_have_stays(bob: Api, saved: str) -> None:
    branched = json_of(bob.post(f"{FILES}/{saved}/branch", {"version": 1, "path": "b.ipynb"}))
    bob.post(f"{FILES}/{saved}/restore", {"version": 1})
    bob.delete(f"{FILES}/{saved}")
    assert free_deleted() == (0, 0)
    let_pass(days=3, seconds=1)
    refused = bob.post(f"{FILES}/{saved}/undelete")
    assert (refused.status_code, json_of(refused)["code"]) == (409, "too_late")
    assert free_deleted() == (1, 2)
    assert free_deleted() == (0, 0)
    assert not NotebookFile.objects.filter(pk=saved).exists()
    assert NotebookVersion.objects.count() == 1
    assert Content.objects.count() == StoredFile.objects.count() == 2
    assert bob.get(f"{FILES}/{branched['id']}/versions/1/content").content == FIRST
    (version,) = json_of(bob.get(f"{FILES}/{branched['id']}/versions"))["items"]
    assert (version["origin"], version["origin_version"]) == ("branch", None)


def test_the_page_asks_deletes_and_undoes(people: Personas, saved: str) -> None:
    browser = Client()
    browser.force_login(people.bob)
    page_url = f"/p/vision/notebooks/files/{saved}"
    assert f"{page_url}/delete" in browser.get(page_url).content.decode()
    page = browser.get(f"{page_url}/delete").content.decode()
    assert "restore it for three days" in page
    listed = browser.post(f"{page_url}/delete", follow=True).content.decode()
    assert "Deleted in the last three days" in listed
    assert f"Undo the deletion of {PATH}" in listed
    assert browser.get(page_url).status_code == 404
    back = browser.post(f"{page_url}/undelete", follow=True).content.decode()
    assert f"{PATH} restored." in back
    assert "Deleted in the last three days" not in back
    vera = Client()
    vera.force_login(people.vera)
    assert f"{page_url}/delete" not in vera.get(page_url).content.decode()
    assert vera.post(f"{page_url}/delete").status_code == 403
