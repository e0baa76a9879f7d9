"""Service accounts as pages: create, a token that is shown once, disable, delete, schedules."""

import re

from portal.accounts.models import ServiceAccount
from tests.personas import Api, Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import fault_of, html_of, text_of

PAGES = "/p/vision/service-accounts"
NEW = {"name": "nightly", "role": "contributor", "description": "Trains at night."}
TOKEN = {"name": "GitHub", "preset": "ci", "expires_in_days": "90"}


def test_an_owner_creates_an_account_and_a_maintainer_makes_its_token(
    people: Personas, browse: Browse
) -> None:
    alice, mia = browse(people.alice), browse(people.mia)
    assert "No service accounts yet" in text_of(alice.get(PAGES))
    answer = alice.post(f"{PAGES}/new", NEW)
    assert answer.headers["Location"] == f"{PAGES}/nightly"
    listed = text_of(mia.get(PAGES))
    assert "nightly" in listed
    assert "Trains at night." in listed
    page = html_of(mia.post(f"{PAGES}/nightly/tokens/new", TOKEN))
    match = re.search(r'id="token-secret">(slp_[^<]+)<', page)
    assert match is not None
    assert Api(match[1]).get("projects/vision").status_code == 200
    again = html_of(mia.get(f"{PAGES}/nightly"))
    assert match[1] not in again
    assert "by Mia" in again
    (token,) = ServiceAccount.objects.get().user.tokens.all()
    revoke = f"{PAGES}/nightly/tokens/{token.pk}/revoke"
    assert "Revoke the token" in text_of(mia.get(revoke))
    mia.post(revoke)
    assert Api(match[1]).get("projects/vision").status_code == 401


def test_a_refused_account_says_why_beside_the_field(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    alice.post(f"{PAGES}/new", NEW)
    taken = alice.post(f"{PAGES}/new", NEW)
    assert taken.status_code == 422
    assert "There is a service account nightly" in fault_of(taken, "name")
    assert fault_of(alice.post(f"{PAGES}/new", NEW | {"role": "owner"}), "role")
    assert fault_of(alice.post(f"{PAGES}/nightly/tokens/new", TOKEN | {"preset": "x"}), "preset")


def test_viewers_see_accounts_without_tokens_or_buttons(people: Personas, browse: Browse) -> None:
    alice, vera = browse(people.alice), browse(people.vera)
    alice.post(f"{PAGES}/new", NEW)
    alice.post(f"{PAGES}/nightly/tokens/new", TOKEN)
    page = text_of(vera.get(f"{PAGES}/nightly"))
    assert "contributor of this project" in page
    assert "GitHub" not in page
    assert "Disable" not in page
    assert vera.get(f"{PAGES}/new").status_code == 403
    assert vera.post(f"{PAGES}/nightly/disable").status_code == 403


def test_disable_enable_change_and_delete(people: Personas, browse: Browse) -> None:
    alice, mia = browse(people.alice), browse(people.mia)
    alice.post(f"{PAGES}/new", NEW)
    assert "Its tokens stop at once" in text_of(mia.get(f"{PAGES}/nightly/disable"))
    mia.post(f"{PAGES}/nightly/disable")
    assert "disabled" in text_of(mia.get(f"{PAGES}/nightly"))
    assert mia.post(f"{PAGES}/nightly/enable").status_code == 403
    alice.post(f"{PAGES}/nightly/enable")
    assert ServiceAccount.objects.get().user.is_active
    alice.post(f"{PAGES}/nightly/edit", {"role": "viewer", "description": "Reads."})
    assert "Reads." in text_of(alice.get(PAGES))
    assert "The name cannot be used again." in text_of(alice.get(f"{PAGES}/nightly/delete"))
    assert alice.post(f"{PAGES}/nightly/delete").headers["Location"] == PAGES
    assert alice.get(f"{PAGES}/nightly").status_code == 404


def test_members_are_people(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    alice.post(f"{PAGES}/new", NEW, follow=True)
    members = text_of(alice.get("/p/vision/members"))
    assert "nightly" not in members
    assert "service accounts : 1 in this project" in members
    assert "nightly (service account)" not in text_of(alice.get("/p/vision"))
    palette = text_of(alice.get("/palette?q=nightly"))
    assert "service account of Vision" in palette
