"""Members and invitations of projects and teams, as pages."""

import re

from django.test import Client

from portal.accounts.models import Invitation, Membership, OutboxMail, User
from portal.accounts.models.tenancy import role_in
from portal.accounts.services.teams import create_team
from slipway.schemas.accounts import Role
from tests.personas import PASSWORD, Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import fault_of, html_of, text_of

INVITE = {"email": "new@example.org", "role": "contributor", "expires_in_days": "7"}


def _link(page: str) -> str:
    match = re.search(r'id="invitation-link">http://[^/]+(/invitations/[^<]+)<', page)
    assert match is not None
    return match.group(1)


def test_an_invitation_shows_its_link_once(people: Personas, browse: Browse) -> None:
    mia = browse(people.mia)
    link = _link(html_of(mia.post("/p/vision/members/invite", INVITE)))
    again = html_of(mia.get("/p/vision/members"))
    assert link not in again
    assert "new@example.org" in again
    assert link in OutboxMail.objects.get().body


def test_a_refused_invitation_says_why_beside_the_field(people: Personas, browse: Browse) -> None:
    mia = browse(people.mia)
    member = mia.post("/p/vision/members/invite", INVITE | {"email": "bob@example.org"})
    assert member.status_code == 422
    assert "is already a member" in fault_of(member, "email")
    above = mia.post("/p/vision/members/invite", INVITE | {"role": "owner"})
    assert fault_of(above, "role")


def test_a_newcomer_joins_by_the_link_and_lands_in_the_project(
    people: Personas, browse: Browse
) -> None:
    link = _link(html_of(browse(people.alice).post("/p/vision/members/invite", INVITE)))
    newcomer = Client()
    page = text_of(newcomer.get(link))
    assert "Alice invites you to Vision" in page
    assert "Join as new@example.org" in page
    form = newcomer.get("/account/join")
    assert "new@example.org" in html_of(form)
    fields = {"email": "other@example.org", "name": "New Comer", "password1": "a-quiet-river-bend"}
    answer = newcomer.post("/account/join", fields)
    assert answer.headers["Location"] == "/p/vision"
    assert newcomer.get("/p/vision").status_code == 200
    joined = User.objects.get(email="new@example.org")
    assert joined.name == "New Comer"
    assert role_in(joined, people.vision) == Role.CONTRIBUTOR
    assert not User.objects.matching("other@").exists()


def test_a_weak_password_or_a_bad_name_is_refused_and_the_name_kept(
    people: Personas, browse: Browse
) -> None:
    link = _link(html_of(browse(people.alice).post("/p/vision/members/invite", INVITE)))
    newcomer = Client()
    newcomer.get(link)
    weak = newcomer.post("/account/join", {"name": "Ada", "password1": "password"})
    assert "too short" in fault_of(weak, "password1")
    assert 'value="Ada"' in html_of(weak)
    bad = newcomer.post("/account/join", {"name": "a\x07b", "password1": "a-quiet-river-bend"})
    assert "U+0007" in fault_of(bad, "name")


def test_joining_without_an_invitation_is_closed(client: Client, db: None) -> None:
    assert "You need an invitation" in text_of(client.get("/account/join"))
    client.post("/account/join", {"email": "x@example.org", "password1": "a-quiet-river-bend"})
    assert not User.objects.matching("x@example.org").exists()


def test_a_member_of_another_project_accepts_with_one_click(
    people: Personas, browse: Browse
) -> None:
    invite = INVITE | {"email": "charlie@example.org"}
    link = _link(html_of(browse(people.alice).post("/p/vision/members/invite", invite)))
    visitor = Client()
    assert f"?next={link}" in html_of(visitor.get(link))
    visitor.post("/account/login", {"login": "charlie@example.org", "password": PASSWORD})
    assert "Accept and go to Vision" in text_of(visitor.get(link))
    assert visitor.post(f"{link}/accept").headers["Location"] == "/p/vision"
    assert "cannot be used" in text_of(visitor.get(link))


def test_an_invitation_waits_on_the_home_page_of_its_address(
    people: Personas, browse: Browse
) -> None:
    invite = INVITE | {"email": "charlie@example.org"}
    browse(people.alice).post("/p/vision/members/invite", invite)
    charlie = browse(people.charlie)
    assert "Alice invites you to Vision" in text_of(charlie.get("/"))
    invitation = Invitation.objects.get()
    stranger = browse(people.root).post(f"/invitations/mine/{invitation.pk}/accept")
    assert stranger.status_code == 404
    charlie.post(f"/invitations/mine/{invitation.pk}/accept")
    assert role_in(people.charlie, people.vision) == Role.CONTRIBUTOR


def test_somebody_signed_in_with_another_address_is_told_so(
    people: Personas, browse: Browse
) -> None:
    link = _link(html_of(browse(people.alice).post("/p/vision/members/invite", INVITE)))
    charlie = browse(people.charlie)
    page = text_of(charlie.get(link))
    assert "You are signed in as charlie@example.org" in page
    assert "made for new@example.org" in page
    assert charlie.post(f"{link}/accept").status_code == 403
    away = charlie.post("/account/logout", {"next": link})
    assert away.headers["Location"] == link


def test_a_withdrawn_invitation_opens_nothing(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    link = _link(html_of(alice.post("/p/vision/members/invite", INVITE)))
    invitation = Invitation.objects.get()
    alice.post(f"/p/vision/invitations/{invitation.pk}/withdraw")
    gone = Client().get(link)
    assert gone.status_code == 404
    assert "cannot be used" in text_of(gone)


def test_roles_are_changed_and_refusals_are_told(people: Personas, browse: Browse) -> None:
    alice, mia = browse(people.alice), browse(people.mia)
    alice.post(f"/p/vision/members/{people.vera.pk}/role", {"role": "contributor"})
    assert role_in(people.vera, people.vision) == Role.CONTRIBUTOR
    assert "Vera is now contributor" in text_of(alice.get("/p/vision/members"))
    alice.post(f"/p/vision/members/{people.alice.pk}/role", {"role": "viewer"})
    assert "last owner" in text_of(alice.get("/p/vision/members"))
    mia.post(f"/p/vision/members/{people.bob.pk}/role", {"role": "owner"})
    assert "Only owners can add or remove owners" in text_of(mia.get("/p/vision/members"))


def test_removing_asks_first_and_names_the_person(people: Personas, browse: Browse) -> None:
    mia = browse(people.mia)
    address = f"/p/vision/members/{people.bob.pk}/remove"
    assert "Remove Bob from Vision?" in text_of(mia.get(address))
    mia.post(address)
    assert browse(people.bob).get("/p/vision").status_code == 404
    assert browse(people.vera).get(f"/p/vision/members/{people.mia.pk}/remove").status_code == 403


def test_a_member_leaves_and_comes_home(people: Personas, browse: Browse) -> None:
    vera = browse(people.vera)
    address = f"/p/vision/members/{people.vera.pk}/remove"
    assert "Leave Vision?" in text_of(vera.get(address))
    assert vera.post(address).headers["Location"] == "/"


def test_members_who_came_through_the_team_say_so(people: Personas, browse: Browse) -> None:
    crew = create_team(by=people.alice, name="Crew")
    Membership.objects.create(user=people.charlie, team=crew, role=Role.VIEWER)
    people.vision.team = crew
    people.vision.save()
    page = html_of(browse(people.alice).get("/p/vision/members?q=charlie"))
    assert 'href="/t/crew/members"' in page
    assert f"/p/vision/members/{people.charlie.pk}/remove" not in page
    assert "charlie@example.org" in html_of(browse(people.alice).get("/t/crew/members?role=viewer"))


def test_a_member_of_a_project_and_its_team_has_one_row(people: Personas, browse: Browse) -> None:
    people.vision.team = create_team(by=people.alice, name="Crew")
    people.vision.save()
    page = browse(people.alice).get("/p/vision/members")
    assert html_of(page).count("alice@example.org") == html_of(page).count("bob@example.org") + 1
    assert "this project, and Crew as owner: the higher role counts" in text_of(page)


def test_a_team_invites_and_removes_like_a_project(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    alice.post("/teams/new", {"name": "Crew"})
    invite = INVITE | {"email": "charlie@example.org"}
    link = _link(html_of(alice.post("/t/crew/members/invite", invite)))
    charlie = browse(people.charlie)
    assert charlie.post(f"{link}/accept").headers["Location"] == "/t/crew"
    alice.post(f"/t/crew/members/{people.charlie.pk}/role", {"role": "maintainer"})
    assert "Invite a person" in text_of(charlie.get("/t/crew/members"))
    alice.post(f"/t/crew/members/{people.charlie.pk}/remove")
    assert charlie.get("/t/crew").status_code == 404
