"""Signing in: throttled without locking anybody out, telling nobody who has an account."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.db import connection
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext
from oauth2_provider.models import Application, RefreshToken
from pytest_django import Settings

from portal.accounts.models import AuditEvent, OutboxMail, User
from portal.accounts.oidc import register_service
from portal.config.settings import PASSWORD_HASHERS
from tests.personas import PASSWORD, Api, Personas, make_token, make_user
from tests.portal.accounts.browser import Browser, plain
from tests.processes import wait_for

FAILURES = 10
WRONG = "not-the-password"
ELSEWHERE = "203.0.113.7"


class CountingHasher(MD5PasswordHasher):
    """Counts how often a password is hashed, which is what takes the time of a sign-in."""

    calls = 0

    def encode(self, password: str, salt: str) -> str:
        CountingHasher.calls += 1
        return super().encode(password, salt)


@contextmanager
def counted_hashes() -> Iterator[list[int]]:
    """Yield a list that afterwards holds how often a password was hashed inside."""
    counts: list[int] = []
    CountingHasher.calls = 0
    yield counts
    counts.append(CountingHasher.calls)


@pytest.fixture(autouse=True)
def _fresh_counters(db: None) -> None:
    cache.clear()


def _fail(browser: Browser, email: str, times: int = FAILURES) -> None:
    for _ in range(times):
        assert browser.sign_in(email, WRONG).status_code == 200


def test_a_person_signs_in_with_address_and_password_in_any_case(people: Personas) -> None:
    browser = Browser()
    answer = browser.sign_in("Alice@Example.ORG")
    assert answer.status_code == 302
    assert answer.headers["Location"] == "/"
    assert browser.is_signed_in


def test_failures_from_one_address_do_not_lock_the_person_out(people: Personas) -> None:
    attacker = Browser()
    _fail(attacker, people.alice.email)
    assert "Too many" in attacker.sign_in(people.alice.email).content.decode()
    assert not attacker.is_signed_in
    assert Browser(ELSEWHERE).sign_in(people.alice.email).status_code == 302
    assert Browser().sign_in(people.bob.email).status_code == 302


def test_a_signed_in_browser_stays_signed_in_while_its_address_is_throttled(
    people: Personas,
) -> None:
    browser = Browser()
    browser.sign_in(people.alice.email)
    _fail(Browser(), people.alice.email)
    assert browser.is_signed_in
    assert Api.of(people.alice).get("whoami").status_code == 200


def test_addresses_of_one_ipv6_network_are_counted_as_one(people: Personas) -> None:
    for number in range(FAILURES):
        Browser(f"2001:db8:1:1::{number:x}").sign_in(people.alice.email, WRONG)
    throttled = Browser("2001:db8:1:1:ffff::1").sign_in(people.alice.email)
    assert "Too many" in throttled.content.decode()
    assert Browser("2001:db8:2:2::1").sign_in(people.alice.email).status_code == 302


def test_good_sign_ins_are_not_counted_as_failures(people: Personas) -> None:
    for _ in range(FAILURES + 2):
        assert Browser().sign_in(people.alice.email).status_code == 302


@pytest.mark.thorough
def test_a_throttled_address_may_try_again_later(people: Personas, settings: Settings) -> None:
    settings.ACCOUNT_RATE_LIMITS = {"login_failed": "2/4s/key", "login": "1000/m/ip"}
    _fail(Browser(), people.alice.email, times=2)
    assert "Too many" in Browser().sign_in(people.alice.email, WRONG).content.decode()
    wait_for(
        lambda: Browser().sign_in(people.alice.email).status_code == 302, "sign-in", within_s=30
    )


def test_a_throttle_of_an_address_that_nobody_has_looks_the_same(people: Personas) -> None:
    answers = []
    for number, email in enumerate((people.alice.email, "nobody@example.org")):
        browser = Browser(f"198.51.100.{10 + number}")
        _fail(browser, email)
        answers.append(_without(email, browser.sign_in(email, WRONG)))
    assert answers[0] == answers[1]


def _without(email: str, answer: HttpResponse) -> tuple[int, dict[str, str], str]:
    status, headers, text = plain(answer)
    return status, headers, text.replace(email, "…")


@pytest.mark.parametrize("kind", ["unknown", "suspended", "without a password"])
def test_a_failed_sign_in_tells_nobody_who_has_an_account(
    people: Personas, settings: Settings, kind: str
) -> None:
    settings.PASSWORD_HASHERS = [f"{__name__}.CountingHasher"]
    known = make_user("known")
    other = {"unknown": "nobody@example.org"}.get(kind, "other@example.org")
    if kind == "suspended":
        make_user("other", is_active=False)
    elif kind == "without a password":
        make_user("other", password=None)
    answers, hashes, queries = [], [], []
    for email in (known.email, other):
        browser = Browser()
        browser.get("/account/login")
        with counted_hashes() as counted, CaptureQueriesContext(connection) as captured:
            answer = browser.sign_in(email, WRONG)
        answers.append(_without(email, answer))
        hashes.append(counted[0])
        queries.append(len(captured))
    assert answers[0] == answers[1]
    assert hashes[0] == hashes[1] > 0
    assert abs(queries[0] - queries[1]) <= 1


def test_a_suspended_person_with_the_right_password_is_told_so_and_stays_out(
    people: Personas,
) -> None:
    User.objects.filter(pk=people.bob.pk).update(is_active=False)
    browser = Browser()
    assert browser.sign_in(people.bob.email).headers["Location"] == "/account/inactive"
    assert not browser.is_signed_in


def test_asking_for_a_new_password_tells_nobody_who_has_an_account(people: Personas) -> None:
    answers = []
    for email in (people.alice.email, "nobody@example.org"):
        browser = Browser()
        answer = browser.send("/account/password/reset", email=email)
        sent = browser.get(answer.headers["Location"])
        answers.append((_without(email, answer), _without(email, sent)))
    assert answers[0] == answers[1]


def _reset_link() -> str:
    mail = OutboxMail.objects.latest("pk")
    match = re.search(r"https?://[^/]+(/account/password/reset/key/\S+)", mail.body)
    assert match, mail.body
    return match[1]


def test_a_new_password_is_set_by_mail_once_and_ends_every_session(people: Personas) -> None:
    old = Browser(ELSEWHERE)
    old.sign_in(people.alice.email)
    browser = Browser()
    browser.send("/account/password/reset", email=people.alice.email)
    link = _reset_link()
    form = browser.get(link).headers["Location"]
    answer = browser.send(form, password1="another-long-phrase")
    assert answer.status_code == 302
    assert not old.is_signed_in
    assert not browser.is_signed_in, "a link in a mail does not sign in by itself"
    assert Browser().sign_in(people.alice.email, PASSWORD).status_code == 200
    assert Browser().sign_in(people.alice.email, "another-long-phrase").status_code == 302
    again = Browser().get(link)
    assert b"password1" not in again.content
    verbs = AuditEvent.objects.filter(actor_id=people.alice.pk).values_list("verb", flat=True)
    assert "user.password" in verbs


def test_changing_the_password_ends_the_other_sessions(people: Personas) -> None:
    here, there = Browser(), Browser(ELSEWHERE)
    here.sign_in(people.alice.email)
    there.sign_in(people.alice.email)
    here.send("/account/password/change", oldpassword=PASSWORD, password1="another-long-phrase")
    assert not there.is_signed_in
    assert AuditEvent.objects.filter(verb="user.password", actor_id=people.alice.pk).count() == 1


def _reset(user: User, **fields: str) -> None:
    browser = Browser()
    browser.send("/account/password/reset", email=user.email)
    form = browser.get(_reset_link()).headers["Location"]
    answer = browser.send(form, password1="another-long-phrase", **fields)
    assert answer.status_code == 302


def test_a_reset_ends_all_api_tokens_unless_the_person_keeps_them(people: Personas) -> None:
    token, foreign = Api.of(people.alice), Api.of(people.bob)
    browser = Browser()
    browser.send("/account/password/reset", email=people.alice.email)
    page = browser.get(browser.get(_reset_link()).headers["Location"]).content.decode()
    box = re.search(r"<input[^>]*name=\"end_tokens\"[^>]*>", page)
    assert box, page
    assert "checked" in box[0]
    _reset(people.alice)
    assert token.get("whoami").status_code == 200
    _reset(people.alice, end_tokens="on")
    assert token.get("whoami").status_code == 401
    assert foreign.get("whoami").status_code == 200
    [event] = AuditEvent.objects.filter(verb="token.revoke_all")
    assert (event.actor_id, event.target_id) == (people.alice.pk, people.alice.pk)
    assert event.after == {"tokens": 1, "names": ["test"]}


@pytest.mark.parametrize("end_tokens", ["", "on"])
def test_a_changed_password_ends_all_api_tokens_where_the_person_says_so(
    people: Personas, end_tokens: str
) -> None:
    token = Api.of(people.alice)
    browser = Browser()
    browser.sign_in(people.alice.email)
    page = browser.get("/account/password/change").content.decode()
    box = re.search(r"<input[^>]*name=\"end_tokens\"[^>]*>", page)
    assert box, page
    assert "checked" not in box[0]
    answer = browser.send(
        "/account/password/change",
        oldpassword=PASSWORD,
        password1="another-long-phrase",
        end_tokens=end_tokens,
    )
    assert answer.status_code == 302
    assert not browser.is_signed_in
    assert token.get("whoami").status_code == (401 if end_tokens else 200)


def test_a_new_password_ends_sign_ins_to_our_services(people: Personas) -> None:
    register_service(client_id="hub", secret="s", name="Hub", redirect_uri="http://x/callback")
    service = Application.objects.get(client_id="hub")
    RefreshToken.objects.create(user=people.alice, token="t", application=service)
    _reset(people.alice)
    assert not RefreshToken.objects.exists()


@pytest.mark.parametrize(
    "password", ["short", "password123", "1234567890123", "alice@example.org", ""]
)
def test_a_weak_password_is_refused_with_a_reason(people: Personas, password: str) -> None:
    browser = Browser()
    browser.sign_in(people.alice.email)
    answer = browser.send("/account/password/change", oldpassword=PASSWORD, password1=password)
    assert answer.status_code in (200, 422)
    assert browser.is_signed_in
    assert Browser(ELSEWHERE).sign_in(people.alice.email).status_code == 302


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "https:evil.example",
        "javascript:alert(1)",
        "http://localhost:9999/",
        "\thttps://evil.example",
        "https://localhost@evil.example",
    ],
)
def test_signing_in_leads_to_no_other_place(people: Personas, target: str) -> None:
    answer = Browser().sign_in(people.alice.email, next=target)
    assert answer.status_code == 302
    assert answer.headers["Location"] == "/"


def test_signing_in_leads_back_to_the_page_that_was_asked_for(people: Personas) -> None:
    location = Browser().get("/p/vision?tab=1").headers["Location"]
    assert location == "/account/login?next=/p/vision%3Ftab%3D1"
    answer = Browser().sign_in(people.alice.email, next="/p/vision?tab=1")
    assert answer.headers["Location"] == "/p/vision?tab=1"


def test_a_session_gets_a_new_key_when_somebody_signs_in(people: Personas) -> None:
    browser = Browser()
    session = browser.client.session
    session["planted"] = "by an attacker"
    session.save()
    planted = session.session_key
    browser.sign_in(people.alice.email)
    assert browser.client.session.session_key != planted
    assert not Session.objects.filter(session_key=planted).exists()


def test_sessions_stand_in_the_database_and_their_cookie_is_closed_to_scripts(
    people: Personas,
) -> None:
    browser = Browser()
    cookie = browser.sign_in(people.alice.email).cookies["slipway_session"]
    assert Session.objects.filter(session_key=cookie.value).exists()
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")
    assert 0 < cookie["max-age"] <= 14 * 86_400


def test_signing_out_ends_the_session_on_the_server(people: Personas) -> None:
    browser = Browser()
    browser.sign_in(people.alice.email)
    stolen = browser.client.cookies["slipway_session"].value
    browser.send("/account/logout")
    thief = Browser()
    thief.client.cookies["slipway_session"] = stolen
    assert not thief.is_signed_in
    verbs = list(AuditEvent.objects.order_by("pk").values_list("verb", flat=True))
    assert verbs[-2:] == ["user.sign_in", "user.sign_out"]


def test_signing_out_everywhere_ends_every_session_but_no_token(people: Personas) -> None:
    here, there = Browser(), Browser(ELSEWHERE)
    here.sign_in(people.alice.email)
    there.sign_in(people.alice.email)
    token = make_token(people.alice)
    here.send("/settings/sessions/end", form="/settings/sessions")
    assert not here.is_signed_in
    assert not there.is_signed_in
    assert Session.objects.count() == 0
    assert Api(token).get("whoami").status_code == 200


def test_signing_out_everywhere_else_keeps_this_browser(people: Personas) -> None:
    here, there, bob = Browser(), Browser(ELSEWHERE), Browser()
    here.sign_in(people.alice.email)
    there.sign_in(people.alice.email)
    bob.sign_in(people.bob.email)
    here.send("/settings/sessions/end", form="/settings/sessions", keep="this")
    assert here.is_signed_in
    assert not there.is_signed_in
    assert bob.is_signed_in


def test_a_suspended_person_loses_sessions_and_tokens_on_the_next_request(
    people: Personas,
) -> None:
    browser, token = Browser(), Api.of(people.bob)
    browser.sign_in(people.bob.email)
    assert token.get("whoami").status_code == 200
    root = Api.of(people.root)
    assert root.patch(f"users/{people.bob.pk}", {"is_active": False}).status_code == 200
    assert not browser.is_signed_in
    assert token.get("whoami").status_code == 401
    assert root.patch(f"users/{people.bob.pk}", {"is_active": True}).status_code == 200
    assert not browser.is_signed_in, "coming back does not bring old sessions back"
    assert token.get("whoami").status_code == 200


def test_a_removed_member_loses_access_on_the_next_request(people: Personas) -> None:
    bob, browser = Api.of(people.bob), Browser()
    browser.sign_in(people.bob.email)
    assert bob.get("projects/vision").status_code == 200
    assert browser.get("/p/vision").status_code == 200
    Api.of(people.alice).delete(f"projects/vision/members/{people.bob.pk}")
    assert bob.get("projects/vision").status_code == 404
    assert browser.get("/p/vision").status_code == 404


def test_the_hasher_of_the_product_is_argon2() -> None:
    assert PASSWORD_HASHERS[0] == "django.contrib.auth.hashers.Argon2PasswordHasher"
