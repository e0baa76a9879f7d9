"""The command palette finds what one may see, and nothing else."""

from slipway.schemas.accounts import Role
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of


def test_it_finds_projects_pages_teams_and_people(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    alice.post("/teams/new", {"name": "Visionaries"})
    page = html_of(alice.get("/palette?q=vision"))
    assert 'data-url="/p/vision"' in page
    assert 'data-url="/t/visionaries"' in page
    assert "/p/vision/members?q=bob@example.org" in html_of(alice.get("/palette?q=bob"))
    assert 'data-url="/settings/tokens/new"' in html_of(alice.get("/palette?q=new+token"))


def test_it_puts_the_pages_of_the_project_at_hand_first(people: Personas, browse: Browse) -> None:
    page = text_of(browse(people.alice).get("/palette?project=vision"))
    assert page.startswith("Vision: Overview")
    assert "Audit log" not in text_of(browse(people.vera).get("/palette?project=vision&q=vision"))


def test_it_keeps_other_tenants_out_of_sight(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    for query in ("?q=other", "?q=charlie", "?q=root", "?project=other"):
        page = html_of(alice.get(f"/palette{query}"))
        assert "/p/other" not in page
        assert "charlie@example.org" not in page
        assert "root@example.org" not in page


def test_it_says_that_there_are_more_of_a_kind(people: Personas, browse: Browse) -> None:
    alice = browse(people.alice)
    for number in range(6):
        alice.post("/projects/new", {"name": f"Weather {number}"})
    assert "There are more" not in text_of(alice.get("/palette?q=weather"))
    alice.post("/projects/new", {"name": "Weather 6"})
    page = text_of(alice.get("/palette?q=weather"))
    assert (
        "There are more projects: the newest 6 of each are shown. Keep typing to narrow down."
        in page
    )
    assert html_of(alice.get("/palette?q=weather")).count('data-url="/p/weather') == 6


def test_it_says_so_when_nothing_is_found(people: Personas, browse: Browse) -> None:
    assert "No results for “zzz”" in text_of(browse(people.alice).get("/palette?q=zzz"))


def test_administrators_are_offered_their_pages(people: Personas, browse: Browse) -> None:
    assert 'data-url="/settings/people"' in html_of(browse(people.root).get("/palette?q=people"))
    assert "/settings/people" not in html_of(browse(people.alice).get("/palette?q=people"))


def test_roles_decide_which_pages_of_a_project_it_offers(people: Personas, browse: Browse) -> None:
    page = html_of(browse(people.bob).get("/palette?project=vision"))
    assert "/p/vision/secrets" in page
    assert "/p/vision/settings" not in page
    assert Role.CONTRIBUTOR.value not in page
