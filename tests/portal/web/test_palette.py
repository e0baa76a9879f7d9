"""The command palette finds what one may see, and nothing else."""

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.accounts.services.secrets import write_secret
from portal.experiments.models import ModelVersion, RegisteredModel
from portal.spend.models import Budget
from portal.web.audit.messages import KINDS
from portal.web.palette.objects import KIND_NOUNS, WITHOUT_PAGE, search_objects
from portal.workloads.ports import registered_kinds
from slipway.schemas.accounts import Role
from tests.matrix.data import make_versions
from tests.matrix.kept_notebooks import make_notebook
from tests.personas import Personas
from tests.portal.experiments.world import make_experiment, make_run
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import make_tier


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


def test_every_kind_of_object_is_searched_or_has_no_page_of_its_own(
    people: Personas, browse: Browse
) -> None:
    assert set(KIND_NOUNS) | WITHOUT_PAGE == set(KINDS)
    assert not set(KIND_NOUNS) & WITHOUT_PAGE
    searched = set(search_objects(Principal(people.root), {}, None, "otter", limit=1))
    workloads = {kind.presentation.search_noun for kind in registered_kinds().values()}
    assert set(KIND_NOUNS.values()) <= searched | workloads | {"projects", "teams", "people"}
    # A kind of workload that is part of another object is found as that object.
    assert all(workloads), "a kind of workload has no search noun in its presentation"


def test_it_finds_versions_of_models_by_their_number(people: Personas, browse: Browse) -> None:
    for project in (people.vision, people.other):
        RegisteredModel.objects.create(workspace=project.pk, name="digits", creation_time=1)
        ModelVersion.objects.create(
            workspace=project.pk,
            name="digits",
            version=12,
            creation_time=1,
            last_updated_time=1,
            current_stage="None",
            status="READY",
        )
    vera = browse(people.vera)
    for query in ("digits+12", "digits+v12", "digits:12", "digits+version+12"):
        page = html_of(vera.get(f"/palette?q={query}"))
        assert 'data-url="/p/vision/models/digits/versions/12"' in page, query
        assert "/p/other" not in page
    assert "versions/" not in html_of(vera.get("/palette?q=digits+13"))


def test_it_finds_secrets_and_budgets_for_those_who_see_them(
    people: Personas, browse: Browse
) -> None:
    for project, by in ((people.vision, people.alice), (people.other, people.charlie)):
        write_secret(project=project, by=by, name="OTTER_KEY", value="weasel")
        Budget.objects.create(project=project, limit_nano_usd=10**9, made_by=by)
    bob = html_of(browse(people.bob).get("/palette?q=otter_key"))
    assert 'data-url="/p/vision/secrets?q=OTTER_KEY"' in bob
    assert "weasel" not in bob
    assert "/p/other" not in bob
    assert "OTTER_KEY" not in html_of(browse(people.vera).get("/palette?q=otter_k"))
    assert "Budget of project vision" in html_of(browse(people.bob).get("/palette?q=vision"))
    assert "Budget of project other" not in html_of(browse(people.bob).get("/palette?q=other"))


def test_administrators_find_nodes_and_tiers(people: Personas, browse: Browse) -> None:
    make_tier(slug="otter-small")
    root = html_of(browse(people.root).get("/palette?q=otter"))
    assert 'data-url="/settings/tiers/otter-small"' in root
    assert "otter-small" not in html_of(browse(people.alice).get("/palette?q=otter"))
    assert 'data-url="/settings/nodes/join"' in html_of(browse(people.root).get("/palette?q=join"))


def test_it_finds_pages_of_the_documentation(people: Personas, browse: Browse) -> None:
    page = html_of(browse(people.vera).get("/palette?q=sdk"))
    assert 'data-url="/docs/sdk"' in page


def test_it_offers_the_actions_that_ones_role_allows(people: Personas, browse: Browse) -> None:
    bob = browse(people.bob)
    for query, url in (
        ("launch+notebook", "/p/vision/notebooks/new"),
        ("deploy", "/p/vision/new-endpoint"),
        ("upload+data", "/p/vision/datasets/new"),
        ("register", "/p/vision/register-model"),
        ("job", "/p/vision/jobs/new"),
        ("report", "/p/vision/reports/new"),
        ("readme", "/p/vision/readme"),
        ("token", "/settings/tokens/new"),
    ):
        assert f'data-url="{url}"' in html_of(bob.get(f"/palette?q={query}&project=vision"))
    assert "Deploy a model in Vision" in text_of(bob.get("/palette?q=deploy"))
    for query, url in (
        ("invite", "/p/vision/members/invite"),
        ("budget", "/spend/budgets?group=vision"),
        ("secret", "/p/vision/secrets/write"),
        ("gates", "/p/vision/registry-rules"),
    ):
        line = f'data-url="{url}"'
        assert line in html_of(browse(people.alice).get(f"/palette?q={query}&project=vision"))
        assert line not in html_of(bob.get(f"/palette?q={query}&project=vision"))
    vera = browse(people.vera)
    assert "Deploy a model" not in text_of(vera.get("/palette?q=deploy&project=vision"))
