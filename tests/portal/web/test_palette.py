"""The command palette finds what one may see, and nothing else."""

from portal.accounts.models import Project, User
from portal.experiments.models import RegisteredModel
from slipway.schemas.accounts import Role
from tests.matrix.data import make_versions
from tests.matrix.kept_notebooks import make_notebook
from tests.personas import Personas
from tests.portal.experiments.world import make_experiment, make_run
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


def _fill(project: Project, owner: User, word: str) -> str:
    """Make an object of each kind whose name contains the word. Returns the id of the run."""
    experiment = make_experiment(project, name=f"{word} experiment")
    run = make_run(experiment, f"{word} run")
    RegisteredModel.objects.create(workspace=project.pk, name=f"{word}-model", creation_time=1)
    make_versions(project=project, by=owner, name=f"{word}-data")
    make_notebook(project=project, by=owner)
    return run.run_uuid


def test_it_finds_objects_of_each_kind_that_one_may_see(people: Personas, browse: Browse) -> None:
    run_id = _fill(people.vision, people.alice, "otter")
    foreign = _fill(people.other, people.charlie, "otter")
    page = html_of(browse(people.vera).get("/palette?q=otter&project=vision"))
    for url in (f"/runs/{run_id}", "/models/otter-model", "/datasets/otter-data", "/experiments/"):
        assert f'data-url="/p/vision{url}' in page
    assert "/p/other" not in page
    by_id = html_of(browse(people.vera).get(f"/palette?q={run_id[:8]}"))
    assert f'data-url="/p/vision/runs/{run_id}"' in by_id
    assert foreign not in html_of(browse(people.vera).get(f"/palette?q={foreign[:8]}"))
    notebooks = html_of(browse(people.vera).get("/palette?q=of-alice.ipynb"))
    assert 'data-url="/p/vision/notebooks/files/' in notebooks
    assert "/p/other" not in html_of(browse(people.vera).get("/palette?q=of-charlie.ipynb"))


def test_it_offers_the_actions_that_ones_role_allows(people: Personas, browse: Browse) -> None:
    bob = browse(people.bob)
    for query, url in (
        ("launch+notebook", "/p/vision/notebooks/new"),
        ("deploy", "/p/vision/new-endpoint"),
        ("upload+data", "/p/vision/datasets/new"),
        ("register", "/p/vision/register-model"),
    ):
        assert f'data-url="{url}"' in html_of(bob.get(f"/palette?q={query}&project=vision"))
    assert "Deploy a model in Vision" in text_of(bob.get("/palette?q=deploy"))
    assert "Invite a member" not in text_of(bob.get("/palette?q=invite&project=vision"))
    assert "Deploy" not in text_of(browse(people.vera).get("/palette?q=deploy&project=vision"))
