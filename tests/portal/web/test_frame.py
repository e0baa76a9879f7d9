"""The frame of every page: policy of the browser, headers, rail, what a page may hold."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from portal.web.base.navigation import IN_PROJECT, IN_SETTINGS, IN_TEAM, RAIL
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of

PAGES = (
    "/",
    "/projects",
    "/projects/new",
    "/p/vision",
    "/p/vision/jobs",
    "/p/vision/jobs/new",
    "/p/vision/pipelines",
    "/p/vision/members",
    "/p/vision/secrets",
    "/p/vision/secrets/write",
    "/p/vision/audit",
    "/p/vision/settings",
    "/p/vision/archive",
    "/teams",
    "/teams/new",
    "/settings/profile",
    "/settings/sessions",
    "/settings/tokens",
    "/settings/tokens/new",
    "/settings/audit",
    "/account/password/change",
    "/account/logout",
    "/no/such/page",
)
ENTRANCES = ("/account/login", "/account/password/reset", "/account/join", "/account/inactive")
# Scripts come from files alone; nothing is styled or scripted inside the page.
_INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:|hx-on|js:")


def _assert_safe(answer: Any) -> None:
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy
    assert "default-src 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "camera=()" in answer.headers["Permissions-Policy"]
    assert "no-store" in answer.headers["Cache-Control"]
    assert _INLINE.search(html_of(answer)) is None


@pytest.mark.parametrize("address", PAGES)
def test_every_page_is_drawn_and_obeys_the_browsers_policy(
    people: Personas, browse: Browse, address: str
) -> None:
    answer = browse(people.alice).get(address)
    assert answer.status_code == (404 if address == "/no/such/page" else 200)
    _assert_safe(answer)
    assert html_of(answer).count("<h1") == 1
    assert html_of(answer).count("<main") == 1
    assert 'href="#content"' in html_of(answer)


@pytest.mark.parametrize("address", ENTRANCES)
def test_every_entrance_is_drawn_for_nobody_in_particular(
    client: Client, db: None, address: str
) -> None:
    answer = client.get(address)
    assert answer.status_code == 200
    _assert_safe(answer)


def test_a_visitor_is_led_to_the_sign_in_page_and_back(client: Client, people: Personas) -> None:
    answer = client.get("/p/vision/members")
    assert answer.headers["Location"] == "/account/login?next=/p/vision/members"
    credentials = {"login": "alice@example.org", "password": "correct-horse-battery"}
    back = client.post("/account/login", credentials | {"next": "/p/vision/members"})
    assert back.headers["Location"] == "/p/vision/members"


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example",
        "//evil.example/x",
        "http://localhost:9999/x",
        "http://testserver/x",
        "javascript:alert(1)",
        "/\\evil.example",
    ],
)
def test_signing_in_leads_nowhere_but_into_the_portal(
    client: Client, people: Personas, target: str
) -> None:
    credentials = {
        "login": "alice@example.org",
        "password": "correct-horse-battery",
        "next": target,
    }
    assert client.post("/account/login", credentials).headers["Location"] == "/"


def test_the_rail_shows_the_rooms_there_are_and_the_page_one_is_on(
    people: Personas, browse: Browse
) -> None:
    page = html_of(browse(people.alice).get("/p/vision/members"))
    for entry in (*RAIL, *IN_PROJECT):
        assert f"<span>{entry.label}</span>" in page
    assert re.search(r'href="/p/vision/members" aria-current="page"', page)


def test_a_project_shows_seven_entries_at_most_at_first_sight(
    people: Personas, browse: Browse
) -> None:
    alice = browse(people.alice)
    assert len({entry.group or entry.label for entry in IN_PROJECT}) <= 7
    assert _open_groups(alice.get("/p/vision")) == []
    assert _open_groups(alice.get("/p/vision/members")) == ["manage"]
    alice.cookies["slipway-navigation"] = "develop.no-such-group"
    assert _open_groups(alice.get("/p/vision")) == ["develop"]
    assert _open_groups(alice.get("/p/vision/members")) == ["develop", "manage"]


def _open_groups(answer: Any) -> list[str]:
    return re.findall(r'data-navigation-group="([a-z]+)" open', html_of(answer))


def test_entries_one_may_not_open_are_not_offered(people: Personas, browse: Browse) -> None:
    page = html_of(browse(people.vera).get("/p/vision"))
    assert "/p/vision/members" in page
    assert "/p/vision/audit" not in page
    assert "/p/vision/settings" not in page
    assert "/settings/people" not in html_of(browse(people.alice).get("/settings/profile"))
    assert "/settings/people" in html_of(browse(people.root).get("/settings/profile"))


def test_every_entry_of_every_menu_leads_to_a_page(people: Personas, browse: Browse) -> None:
    alice, root = browse(people.alice), browse(people.root)
    alice.post("/teams/new", {"name": "Crew"})
    for entry in (*RAIL, *IN_SETTINGS):
        assert root.get(reverse(entry.route)).status_code == 200
    for entry in IN_PROJECT:
        assert alice.get(reverse(entry.route, args=["vision"])).status_code == 200
    for entry in IN_TEAM:
        assert alice.get(reverse(entry.route, args=["crew"])).status_code == 200


def test_a_missing_page_says_what_to_do_and_names_the_request(
    people: Personas, browse: Browse
) -> None:
    answer = browse(people.alice).get("/p/none-such")
    assert answer.status_code == 404
    assert answer.headers["X-Request-Id"] in text_of(answer)
    assert "ask an owner" in text_of(answer)


def test_a_part_of_a_page_that_fails_becomes_a_toast(people: Personas, browse: Browse) -> None:
    answer = browse(people.alice).get("/p/none-such", headers={"HX-Request": "true"})
    assert answer.status_code == 404
    assert answer.content == b""
    assert '"level": "error"' in answer.headers["HX-Trigger"]


def test_a_form_without_its_anti_forgery_token_is_refused_with_a_way_on(
    people: Personas,
) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(people.alice)
    answer = strict.post("/projects/new", {"name": "Forged"})
    assert answer.status_code == 403
    assert "reload the page" in text_of(answer)


def test_a_fault_of_ours_is_told_without_the_database(
    people: Personas, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = browse(people.alice)
    alice.raise_request_exception = False
    with monkeypatch.context() as patched:
        patched.setenv("SLIPWAY_UNUSED", "")
        answer = alice.get("/projects?cursor=" + "A" * 3)
    assert answer.status_code == 422
    assert "This cursor is not valid" in text_of(answer)


def test_an_address_that_only_takes_forms_says_so_when_it_is_opened(
    people: Personas, browse: Browse
) -> None:
    answer = browse(people.alice).get("/p/vision/members/invite")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "POST"
    assert "only accepts form submissions" in text_of(answer)
    assert "Go back to the page with the form" in text_of(answer)
