"""One's own account, tokens, sessions; secrets, audit log and people, as pages."""

import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from portal.accounts.models import ApiToken, OutboxMail, ProjectSecret, User
from portal.accounts.services.secrets import secrets_of
from slipway.schemas.accounts import Scope
from tests.personas import PASSWORD, Api, Personas, json_of, make_token
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import fault_of, form_of, html_of, text_of


def _shown_token(page: str) -> str:
    match = re.search(r'id="token-secret">(slp_[^<]+)<', page)
    assert match is not None
    return match.group(1)


def test_a_token_is_shown_once_and_works(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    fields = {"name": "laptop", "scopes": ["projects:read"], "expires_in_days": "30"}
    made = alice.post("/settings/tokens/new", fields)
    secret = _shown_token(html_of(made))
    assert "no-store" in made.headers["Cache-Control"]
    assert json_of(Api(secret).get("whoami"))["user"]["email"] == "alice@example.org"
    page = html_of(alice.get("/settings/tokens"))
    assert secret not in page
    assert secret[:12] in page


def test_a_link_fills_the_token_form_in(people: Personas, browse: Browse) -> None:
    query = "?name=cli-box&scopes=tokens:read,projects:read,none:such"
    form = form_of(browse(people.alice).get("/settings/tokens/new" + query))
    assert form["name"].value() == "cli-box"
    assert form["scopes"].value() == ["tokens:read", "projects:read"]
    assert form["preset"].value() == "custom"


def test_a_preset_sets_the_scopes_and_the_list_names_it(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    assert form_of(alice.get("/settings/tokens/new"))["preset"].value() == "command-line"
    fields = {"name": "laptop", "preset": "command-line", "scopes": ["audit:read"]}
    made = html_of(alice.post("/settings/tokens/new", fields | {"expires_in_days": "30"}))
    scopes = json_of(Api(_shown_token(made)).get("whoami"))["token"]["scopes"]
    assert scopes == sorted(scope for scope in Scope if scope is not Scope.ADMIN)
    assert "Command line" in text_of(alice.get("/settings/tokens"))
    fields |= {"preset": "everything", "expires_in_days": "30"}
    assert fault_of(alice.post("/settings/tokens/new", fields), "preset")
    made = html_of(browse(people.root).post("/settings/tokens/new", fields))
    assert "admin" in json_of(Api(_shown_token(made)).get("whoami"))["token"]["scopes"]


def test_a_token_without_a_scope_is_refused_and_the_name_kept(
    people: Personas, browse: Browse
) -> None:
    fields = {"name": "kept", "expires_in_days": "30"}
    answer = browse(people.alice).post("/settings/tokens/new", fields)
    assert answer.status_code == 422
    custom = browse(people.alice).post("/settings/tokens/new", fields | {"preset": "custom"})
    assert "Select at least one scope" in fault_of(custom, "scopes")
    assert fault_of(answer, "scopes")
    assert 'value="kept"' in html_of(answer)


def test_only_administrators_are_offered_the_scope_admin(people: Personas, browse: Browse) -> None:
    assert 'value="admin"' not in html_of(browse(people.alice).get("/settings/tokens/new"))
    assert 'value="admin"' in html_of(browse(people.root).get("/settings/tokens/new"))
    fields = {"name": "x", "scopes": ["admin"], "expires_in_days": "30"}
    assert fault_of(browse(people.alice).post("/settings/tokens/new", fields), "scopes")


def test_a_token_is_confined_to_a_project_one_is_in(people: Personas, browse: Browse) -> None:
    fields = {"name": "ci", "scopes": ["projects:read"], "expires_in_days": "7"}
    made = browse(people.bob).post("/settings/tokens/new", fields | {"project": "vision"})
    token = Api(_shown_token(html_of(made)))
    assert [item["slug"] for item in json_of(token.get("projects"))["items"]] == ["vision"]
    foreign = browse(people.bob).post("/settings/tokens/new", fields | {"project": "other"})
    assert fault_of(foreign, "project")


def test_revoking_asks_first_and_works_at_once(people: Personas, browse: Browse) -> None:
    secret = make_token(people.alice, name="old laptop")
    token = ApiToken.objects.get()
    alice = browse(people.alice)
    assert "Revoke the token “old laptop”?" in text_of(
        alice.get(f"/settings/tokens/{token.pk}/revoke")
    )
    alice.post(f"/settings/tokens/{token.pk}/revoke")
    assert Api(secret).get("whoami").status_code == 401
    assert "“old laptop” no longer works" in text_of(alice.get("/settings/tokens"))
    assert "old laptop" not in html_of(alice.get("/settings/tokens"))
    assert "revoked" in text_of(alice.get("/settings/tokens?state=all"))


def test_a_secret_is_written_replaced_and_never_shown(people: Personas, browse: Browse) -> None:
    mia = browse(people.mia)
    mia.post("/p/vision/secrets/write", {"name": "DB_PASSWORD", "value": "hunter2\r\nline"})
    page = html_of(mia.get("/p/vision/secrets"))
    assert "DB_PASSWORD" in page
    assert "hunter2" not in page
    assert secrets_of(people.vision) == {"DB_PASSWORD": "hunter2\nline"}
    mia.post("/p/vision/secrets/write", {"name": "DB_PASSWORD", "value": "other"})
    assert secrets_of(people.vision) == {"DB_PASSWORD": "other"}
    assert "Delete the secret DB_PASSWORD?" in text_of(
        mia.get("/p/vision/secrets/DB_PASSWORD/delete")
    )
    mia.post("/p/vision/secrets/DB_PASSWORD/delete")
    assert not ProjectSecret.objects.exists()


def test_a_bad_secret_name_is_refused_beside_its_field(people: Personas, browse: Browse) -> None:
    answer = browse(people.mia).post(
        "/p/vision/secrets/write", {"name": "lower", "value": "kept value"}
    )
    assert "capital letters" in fault_of(answer, "name")
    assert "kept value" in html_of(answer)


def test_contributors_see_names_of_secrets_and_cannot_write(
    people: Personas, browse: Browse
) -> None:
    bob = browse(people.bob)
    assert "Add secret" not in text_of(bob.get("/p/vision/secrets"))
    assert bob.get("/p/vision/secrets/write").status_code == 403
    assert browse(people.vera).get("/p/vision/secrets").status_code == 403


def test_the_audit_log_tells_before_and_after_and_is_filtered(
    people: Personas, browse: Browse
) -> None:
    alice = browse(people.alice)
    alice.post("/p/vision/settings", {"name": "Eyesight", "description": ""})
    alice.post("/p/vision/secrets/write", {"name": "KEY", "value": "v"})
    page = text_of(alice.get("/p/vision/audit"))
    assert "alice@example.org edited the project vision" in page
    assert "name: Vision" in page
    assert "name: Eyesight" in page
    only = text_of(alice.get("/p/vision/audit?verb=secret.create"))
    assert "set the secret KEY" in only
    assert "edited the project" not in only
    assert "No matches" in text_of(alice.get("/p/vision/audit?until=2020-01-01"))
    assert "is not a date" in text_of(alice.get("/p/vision/audit?since=yesterday"))


def test_the_export_of_a_project_holds_that_project_alone(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    alice.post("/projects/new", {"name": "Apart"})
    page = html_of(alice.get("/p/apart/audit?verb=project.create"))
    match = re.search(r'href="(/api/v1/audit/export\?[^"]*format=jsonl)"', page)
    assert match is not None
    answer: Any = alice.get(match.group(1).replace("&amp;", "&"))
    lines = answer.getvalue().decode().splitlines()
    assert len(lines) == 1
    assert '"project":"apart"' in lines[0]


def test_ones_name_is_changed_and_a_bad_one_refused(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    alice.post("/settings/profile", {"name": "Alice Liddell"})
    assert "Hello, Alice Liddell" in text_of(alice.get("/"))
    refused = alice.post("/settings/profile", {"name": "a\u200fb"})
    assert "U+200F" in fault_of(refused, "name")


def test_sessions_are_listed_and_ended_one_by_one(people: Personas) -> None:
    credentials = {"login": "alice@example.org", "password": PASSWORD}
    here, there = Client(headers={"User-Agent": "Firefox/1 Linux"}), Client()
    here.post("/account/login", credentials)
    there.post("/account/login", credentials)
    page = html_of(here.get("/settings/sessions"))
    assert "Firefox on Linux" in page
    assert page.count("this browser") == 1
    ends = re.findall(r'action="(/settings/sessions/\d+/end)"', page)
    assert len(ends) == 1
    here.post(ends[0])
    assert there.get("/").status_code == 302
    assert here.get("/").status_code == 200


@pytest.mark.parametrize(("keep", "here_lives"), [("this", True), ("", False)])
def test_signing_out_everywhere(people: Personas, keep: str, here_lives: bool) -> None:
    credentials = {"login": "alice@example.org", "password": PASSWORD}
    here, there = Client(), Client()
    here.post("/account/login", credentials)
    there.post("/account/login", credentials)
    here.post("/settings/sessions/end", {"keep": keep})
    assert there.get("/").status_code == 302
    assert (here.get("/").status_code == 200) is here_lives


def test_a_forgotten_password_is_reset_through_the_outbox(people: Personas) -> None:
    visitor = Client()
    answer = visitor.post("/account/password/reset", {"email": "alice@example.org"})
    assert answer.headers["Location"] == "/account/password/reset/sent"
    mail = OutboxMail.objects.get()
    assert mail.subject == "Slipway: Choose a new password"
    link = re.search(r"http://[^/]+(/account/password/reset/key/\S+)", mail.body)
    assert link is not None
    form = visitor.get(link.group(1), follow=True)
    address = form.redirect_chain[-1][0]
    short = visitor.post(address, {"password1": "short"})
    assert "too short" in fault_of(short, "password1")
    visitor.post(address, {"password1": "a-quiet-river-bend"})
    assert User.objects.get(pk=people.alice.pk).check_password("a-quiet-river-bend")
    assert "no longer works" in text_of(Client().get(link.group(1)))


def test_a_reset_says_where_the_mail_is(people: Personas, settings: Settings) -> None:
    for has_mail, words in ((False, "folder of Slipway's data folder"), (True, "on its way")):
        settings.SLIPWAY_HAS_MAIL = has_mail
        fields = {"email": "alice@example.org"}
        page = text_of(Client().post("/account/password/reset", fields, follow=True))
        assert words in page


def test_an_unknown_address_gets_the_same_answer_and_a_mail_that_says_so(db: None) -> None:
    answer = Client().post("/account/password/reset", {"email": "nobody@example.org"})
    assert answer.headers["Location"] == "/account/password/reset/sent"
    assert "there is no account for it" in OutboxMail.objects.get().body


def test_the_password_is_changed_and_every_session_ends(people: Personas) -> None:
    credentials = {"login": "alice@example.org", "password": PASSWORD}
    here, there = Client(), Client()
    here.post("/account/login", credentials)
    there.post("/account/login", credentials)
    wrong = here.post(
        "/account/password/change", {"oldpassword": "x", "password1": "a-quiet-river-bend"}
    )
    assert fault_of(wrong, "oldpassword")
    new = {"oldpassword": PASSWORD, "password1": "a-quiet-river-bend"}
    here.post("/account/password/change", new)
    assert there.get("/").status_code == 302


def test_a_wrong_password_says_the_same_for_known_and_unknown_people(people: Personas) -> None:
    known = Client().post("/account/login", {"login": "alice@example.org", "password": "nope"})
    credentials = {"login": "phantom@example.org", "password": "nope"}
    unknown = Client().post("/account/login", credentials)
    pages = [
        html_of(answer).replace(name, "")
        for answer, name in ((known, "alice"), (unknown, "phantom"))
    ]
    masked = [re.sub(r'value="[^"]{40,}"', "", page) for page in pages]
    assert masked[0] == masked[1]
    assert "alice" in html_of(known), "the address that was typed is kept"


def test_an_administrator_suspends_with_an_heir_and_reinstates(
    people: Personas, browse: Browse
) -> None:
    root = browse(people.root)
    address = f"/settings/people/{people.alice.pk}"
    assert "Suspend Alice?" in text_of(root.get(f"{address}/suspend"))
    alone = root.post(f"{address}/suspend", {"hand_over_to": ""})
    assert "is the only owner of vision" in fault_of(alone, "hand_over_to")
    ghost = root.post(f"{address}/suspend", {"hand_over_to": "ghost@example.org"})
    assert "no active person" in fault_of(ghost, "hand_over_to")
    root.post(f"{address}/suspend", {"hand_over_to": "mia@example.org"})
    assert not User.objects.get(pk=people.alice.pk).is_active
    assert "owner" in text_of(browse(people.mia).get("/p/vision"))
    assert "Alice" in text_of(root.get("/settings/people?state=suspended"))
    root.post(f"{address}/change", {"do": "reinstate"})
    assert User.objects.get(pk=people.alice.pk).is_active


def test_the_last_administrator_stays_one(people: Personas, browse: Browse) -> None:
    root = browse(people.root)
    root.post(f"/settings/people/{people.root.pk}/change", {"do": "demote"})
    assert "last administrator" in text_of(root.get(f"/settings/people/{people.root.pk}"))
    root.post(f"/settings/people/{people.bob.pk}/change", {"do": "promote"})
    assert "administrator" in text_of(root.get("/settings/people?state=administrators&q=bob"))
    assert root.post(f"/settings/people/{people.bob.pk}/change", {"do": "x"}).status_code == 422


def test_scopes_have_words_for_people(people: Personas, browse: Browse) -> None:
    page = text_of(browse(people.root).get("/settings/tokens/new"))
    for scope in Scope:
        assert scope.value in page
