"""Notes about jobs, sweeps, notebook servers and endpoints, by API and on their pages."""

import pytest
from django.test import Client

from portal.accounts.models import AuditEvent, ObjectNote, User
from portal.accounts.noted import noted_kinds
from slipway.cli.note import Noted
from tests.matrix.actors import Cast
from tests.personas import Api, json_of
from tests.portal.web.reading import html_of, text_of

pytestmark = [
    pytest.mark.django_db(databases=["default", "tracking"]),
]
# Kinds of notes by the name of an object of each in the world, and the page of such an object.
_KINDS = {
    "job": ("job", "/p/vision/jobs/{}"),
    "sweep": ("sweep", "/p/vision/sweeps/{}"),
    "notebook": ("notebook server", "/p/vision/notebooks/servers/{}"),
    "endpoint": ("endpoint", "/p/vision/endpoints/{}"),
}


def browser(user: User) -> Client:
    """Sign a person in."""
    client = Client(headers={"Accept": "text/html"})
    client.force_login(user)
    return client


def test_every_kind_of_notes_has_a_command() -> None:
    assert {kind.name for kind in noted_kinds()} == set(Noted) == set(_KINDS)


@pytest.mark.parametrize("kind", _KINDS)
def test_notes_are_written_on_a_page_and_shown_to_members_as_safe_markdown(
    cast: Cast, kind: str
) -> None:
    name, template = _KINDS[kind]
    target, people = cast.world.own[name], cast.world.people
    page, form = template.format(target), f"/p/vision/notes/{kind}/{target}"
    bob, vera = browser(people.bob), browser(people.vera)
    assert f'href="{form}"' in html_of(bob.get(page))
    assert form not in html_of(vera.get(page))
    typed = {"text": "Asks **Ada** first <script>alert(1)</script>", "version": "0"}
    preview = bob.post(form, typed | {"preview": "1"})
    assert "<strong>Ada</strong>" in html_of(preview)
    assert not ObjectNote.objects.exists()
    saved = bob.post(form, typed)
    assert (saved.status_code, saved.headers["Location"]) == (302, page)
    shown = html_of(vera.get(page))
    assert "<strong>Ada</strong>" in shown
    assert "<script>alert" not in shown
    assert "Saved by Bob" in text_of(vera.get(page))
    assert vera.get(form).status_code == 403
    # The same id in another project, and another project's object in this one, do not exist.
    foreign = cast.world.foreign[name]
    for address in (f"/p/other/notes/{kind}/{target}", f"/p/vision/notes/{kind}/{foreign}"):
        assert bob.get(address).status_code == 404
        assert bob.post(address, typed).status_code == 404
    event = AuditEvent.objects.filter(verb="note.save").get()
    assert event.after == {"version": 1, "characters": len(typed["text"])}
    assert "edited the notes about" in text_of(browser(people.alice).get("/p/vision/audit"))


@pytest.mark.postgres
def test_two_editors_do_not_overwrite_each_other(cast: Cast) -> None:
    people = cast.world.people
    path = f"projects/vision/notes/endpoint/{cast.world.own['endpoint']}"
    bob, alice = Api.of(people.bob), Api.of(people.alice)
    assert json_of(alice.get(path)) == {
        "text": "", "version": 0, "saved_at": None, "saved_by": None
    }  # fmt: skip
    first = json_of(bob.put(path, {"text": "of Bob\r\n", "version": 0}))
    assert (first["text"], first["version"]) == ("of Bob", 1)
    refused = alice.put(path, {"text": "of Alice", "version": 0})
    problem = json_of(refused)
    assert (refused.status_code, problem["code"]) == (409, "note_changed")
    assert "Bob saved version 1 at " in problem["detail"]
    assert json_of(alice.put(path, {"text": "x", "version": 7}))["code"] == "note_changed"
    page = browser(people.alice).post(f"/p/vision/{path.partition('/vision/')[2]}", {
        "text": "of Alice", "version": "0"
    })  # fmt: skip
    assert page.status_code == 422
    assert "of Alice" in text_of(page)
    assert "of Bob" in text_of(page)
    assert json_of(alice.put(path, {"text": "both", "version": 1}))["version"] == 2


def test_notes_have_a_bound_and_an_object(cast: Cast) -> None:
    people = cast.world.people
    endpoint = cast.world.own["endpoint"]
    alice = Api.of(people.alice)
    path = f"projects/vision/notes/endpoint/{endpoint}"
    long = alice.put(path, {"text": "a" * 20_001, "version": 0})
    assert (long.status_code, json_of(long)["field"]) == (422, "text")
    assert Api.of(people.vera).put(path, {"text": "x", "version": 0}).status_code == 403
    assert json_of(Api.of(people.vera).get(path))["version"] == 0
    assert Api.of(people.charlie).get(path).status_code == 404
    for missing in (f"job/{endpoint}", "endpoint/none", "node/atlas", f"pool/{endpoint}"):
        assert alice.get(f"projects/vision/notes/{missing}").status_code == 404
        body = {"text": "x", "version": 0}
        assert alice.put(f"projects/vision/notes/{missing}", body).status_code == 404
