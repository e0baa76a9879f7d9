"""Machines, tiers and quotas on the pages of administrators; jobs on Home and in the palette."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from portal.accounts.models import User
from portal.compute.models import JoinToken, Node, Quota, Tier, TierPrice
from portal.core.clock import frozen
from slipway.schemas.agent import DiskFacts, IsolationFacts
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.labs import make_job, run_job, use_store
from tests.portal.web.reading import fault_of, html_of, text_of
from tests.portal.workloads.machines import Machine, after, finish, make_machine, make_tier

PAGES = (
    "/settings/nodes",
    "/settings/nodes/lab-1",
    "/settings/nodes/lab-1/drain",
    "/settings/nodes/lab-1/mix",
    "/settings/nodes/lab-1/remove",
    "/settings/tiers",
    "/settings/tiers/new",
    "/settings/tiers/small",
    "/settings/tiers/small/retire",
    "/settings/quotas",
)


@pytest.fixture(autouse=True)
def machine(people: Personas, settings: Settings, tmp_path: Path) -> Machine:
    """A machine with two places of the tier small, at 3.60 USD an hour."""
    use_store(settings, tmp_path)
    made = make_machine("lab-1", cpus=2, gib=8, labels={"zone": "a"})
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    return made


@pytest.mark.parametrize("address", PAGES)
def test_administrators_alone_open_these_pages(
    people: Personas, browse: Browse, address: str
) -> None:
    assert browse(people.root).get(address).status_code == 200
    assert browse(people.alice).get(address).status_code == 403


@pytest.mark.parametrize("address", ["nodes/none", "nodes/none/drain", "tiers/none"])
def test_what_does_not_exist_is_not_found(people: Personas, browse: Browse, address: str) -> None:
    assert browse(people.root).get(f"/settings/{address}").status_code == 404


def test_the_list_of_nodes_tells_load_labels_and_what_is_taken(
    people: Personas, browse: Browse
) -> None:
    run_job(make_job(people.vision, people.bob))
    listed = text_of(browse(people.root).get("/settings/nodes"))
    assert "lab-1 zone=a ready" in listed
    assert "50 % allocated 1 % busy" in listed


def test_a_node_without_a_free_processor_says_zero(people: Personas, browse: Browse) -> None:
    for _ in range(2):
        run_job(make_job(people.vision, people.bob))
    page = html_of(browse(people.root).get("/settings/nodes/lab-1"))
    assert "<dt>Free now</dt><dd>0 CPUs, " in page


def test_a_silent_node_is_shown_as_lost(people: Personas, browse: Browse) -> None:
    root = browse(people.root)
    with frozen(after(40)):
        assert "silent" in text_of(root.get("/settings/nodes"))
    with frozen(after(70)):
        assert "lost" in text_of(root.get("/settings/nodes/lab-1"))


def test_an_administrator_sees_names_of_what_runs_only_in_own_projects(
    people: Personas, browse: Browse
) -> None:
    run_job(make_job(people.vision, people.bob, name="secret plan"))
    seen = text_of(browse(people.root).get("/settings/nodes/lab-1"))
    assert "another project's job" in seen
    assert "secret plan" not in seen
    User.objects.filter(pk=people.bob.pk).update(is_administrator=True)
    bob = User.objects.get(pk=people.bob.pk)
    assert "secret plan, a job of Vision" in text_of(browse(bob).get("/settings/nodes/lab-1"))


def test_the_command_to_join_is_shown_once(people: Personas, browse: Browse) -> None:
    root = browse(people.root)
    form = {"node": "gpu-1", "expires_in_minutes": "60"}
    answer = root.post("/settings/nodes/join", form)
    shown = re.search(r'id="join-token">(slj_[^<]+)<', html_of(answer))
    assert shown is not None
    page = text_of(answer)
    assert ".venv/bin/slipway node join http://localhost:8000 --token - --name gpu-1" in page
    assert "Other machines cannot reach http://localhost:8000" in page
    assert "make setup" in page
    assert JoinToken.objects.get(node_name="gpu-1").used_at is None
    assert shown.group(1) not in html_of(root.get("/settings/nodes"))
    bad = root.post("/settings/nodes/join", {"node": "Not A Name", "expires_in_minutes": "60"})
    assert bad.status_code == 422
    assert fault_of(bad, "node")
    assert "Not A Name" in html_of(bad)


def test_the_command_to_join_has_an_address_that_other_machines_reach(
    people: Personas, browse: Browse, settings: Settings
) -> None:
    form = {"node": "", "expires_in_minutes": "60"}
    settings.SLIPWAY_URL = "https://ml.example.net"
    configured = text_of(browse(people.root).post("/settings/nodes/join", form))
    assert "slipway node join https://ml.example.net --token -" in configured
    assert "cannot reach" not in configured


def test_a_node_is_cordoned_opened_drained_and_removed(people: Personas, browse: Browse) -> None:
    root = browse(people.root)

    def state() -> tuple[str, str]:
        node = Node.objects.get(name="lab-1")
        return node.state, node.reason

    change = "/settings/nodes/lab-1/change"
    answer = root.post(change, {"do": "cordon", "reason": "new disk"}, follow=True)
    assert "gets no new work" in text_of(answer)
    assert state() == ("cordoned", "new disk")
    root.post(change, {"do": "uncordon"})
    assert state() == ("ready", "")
    root.post("/settings/nodes/lab-1/drain", {"reason": "moves house"})
    assert state() == ("draining", "moves house")
    assert root.post(change, {"do": "explode"}).status_code == 422
    assert "lab-1 removed" in text_of(root.post("/settings/nodes/lab-1/remove", follow=True))
    assert not Node.objects.present().exists()


def test_a_node_in_use_is_not_removed_and_the_page_says_why(
    people: Personas, browse: Browse
) -> None:
    run_job(make_job(people.vision, people.bob))
    root = browse(people.root)
    assert "1 task runs there. Drain it first" in text_of(root.get("/settings/nodes/lab-1/remove"))
    answer = root.post("/settings/nodes/lab-1/remove", follow=True)
    assert "1 task still runs on lab-1" in text_of(answer)
    assert Node.objects.present().exists()


def test_the_page_of_a_node_says_how_well_it_keeps_projects_apart(
    people: Personas, browse: Browse, machine: Machine
) -> None:
    root = browse(people.root)
    page = text_of(root.get("/settings/nodes/lab-1"))
    assert "namespaces Tasks of different projects cannot see each other's files" in page
    assert "Features: user, mount, pid, ipc, network" in page
    assert "Allow mixing" not in page
    assert "namespaces" in text_of(root.get("/settings/nodes"))
    weak = IsolationFacts(backend="process", level="shared", detail="No user namespaces here.")
    machine.facts = machine.facts.model_copy(update={"isolation": [weak]})
    machine.beat()
    page = text_of(root.get("/settings/nodes/lab-1"))
    assert "shared Tasks run as one user; one project at a time." in page
    assert "Reason for this level: No user namespaces here." in page
    assert "Work of other projects waits" in page
    events = text_of(root.get("/settings/audit"))
    assert "reported weaker isolation of the node lab-1" in events


def test_the_page_of_a_node_says_what_a_task_may_hold_on_its_disk(
    people: Personas, browse: Browse, machine: Machine
) -> None:
    root = browse(people.root)
    assert "A task can use" not in text_of(root.get("/settings/nodes/lab-1"))
    gib = 1024**3
    disk = DiskFacts(capacity_bytes=100 * gib, task_bytes=25 * gib, reserve_bytes=2 * gib)
    machine.facts = machine.facts.model_copy(update={"disk": disk})
    machine.beat(disk_free_bytes=40 * gib)
    page = text_of(root.get("/settings/nodes/lab-1"))
    assert "100 GiB, 40 GiB free" in page
    assert "A task can use 25 GiB; 2 GiB are reserved." in page


def test_mixing_asks_first_and_can_be_ended(
    people: Personas, browse: Browse, machine: Machine
) -> None:
    machine.facts = machine.facts.model_copy(update={"isolation": []})
    machine.beat()
    root = browse(people.root)
    risk = "Code of one project can read files, memory and secrets of other projects"
    text = text_of(root.get("/settings/nodes/lab-1/mix"))
    assert "Allow projects to mix on lab-1?" in text
    assert risk in text
    assert not Node.objects.get().mixes_projects, "looking changes nothing"
    page = text_of(root.post("/settings/nodes/lab-1/mix", follow=True))
    assert risk in page
    assert Node.objects.get().mixes_projects
    change = "/settings/nodes/lab-1/change"
    page = text_of(root.post(change, {"do": "separate"}, follow=True))
    assert "runs one project at a time" in page
    assert not Node.objects.get().mixes_projects
    assert browse(people.alice).post("/settings/nodes/lab-1/mix").status_code == 403


def _new_tier(**changes: str) -> dict[str, str]:
    fields = {
        "name": "One H100",
        "cpus": "8",
        "memory_gib": "64",
        "gpus": "1",
        "gpu_model": "H100",
        "labels": "zone=a",
        "price": "2.50",
    }
    return fields | changes


def test_a_tier_is_made_with_what_the_form_says(people: Personas, browse: Browse) -> None:
    answer = browse(people.root).post("/settings/tiers/new", _new_tier(), follow=True)
    assert "One H100 created" in text_of(answer)
    tier = Tier.objects.get(slug="one-h100")
    assert (tier.cpu_millis, tier.memory_bytes, tier.gpus) == (8000, 64 * 1024**3, 1)
    assert (tier.gpu_model, tier.labels) == ("H100", {"zone": "a"})
    assert tier.nano_usd_per_hour == 2_500_000_000


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"price": "cheap"}, "price"),
        ({"price": "-1"}, "price"),
        ({"price": "0.0000000001"}, "price"),
        ({"labels": "zone"}, "labels"),
        ({"gpus": "-1"}, "gpus"),
        ({"slug": "small"}, "slug"),
        ({"slug": "Not A Slug"}, "slug"),
        ({"preemptible_discount": "91"}, "preemptible_discount"),
        ({"preemptible_discount": "-1"}, "preemptible_discount"),
    ],
)
def test_a_bad_tier_is_refused_beside_its_field_and_keeps_what_was_typed(
    people: Personas, browse: Browse, changes: dict[str, str], field: str
) -> None:
    answer = browse(people.root).post("/settings/tiers/new", _new_tier(**changes))
    assert answer.status_code == 422
    assert fault_of(answer, field)
    assert "One H100" in html_of(answer)
    assert Tier.objects.count() == 3  # the two that came with the machine, and small


def test_a_price_is_added_and_the_old_one_stays_in_the_history(
    people: Personas, browse: Browse
) -> None:
    root = browse(people.root)
    answer = root.post("/settings/tiers/small", {"price": "4.20"}, follow=True)
    text = text_of(answer)
    assert "New price saved. It applies from now on" in text
    assert "current $4.20" in text
    assert "$3.60" in text
    assert TierPrice.objects.filter(tier__slug="small").count() == 2


def test_a_withdrawn_tier_is_not_offered_until_it_is_again(
    people: Personas, browse: Browse
) -> None:
    root, bob = browse(people.root), browse(people.bob)
    root.post("/settings/tiers/small/retire")
    assert 'value="small"' not in html_of(bob.get("/p/vision/jobs/new"))
    assert "/settings/tiers/small" not in html_of(root.get("/settings/tiers"))
    assert "retired" in text_of(root.get("/settings/tiers?state=all"))
    root.post("/settings/tiers/small/offer")
    assert 'value="small"' in html_of(bob.get("/p/vision/jobs/new"))


def test_a_quota_is_set_for_a_project_and_shown_with_what_is_used(
    people: Personas, browse: Browse
) -> None:
    run_job(make_job(people.vision, people.bob))
    root = browse(people.root)
    fields = {"group": "vision", "cpus": "1.5", "running": "3", "weight": "2"}
    text = text_of(root.post("/settings/quotas", fields, follow=True))
    assert "Vision project vision 1 of 1.5 0 of any 1 of 3 2.0" in text
    quota = Quota.objects.get()
    assert (quota.cpu_millis, quota.gpus, quota.running, quota.weight) == (1500, None, 3, 2.0)
    bad = root.post("/settings/quotas", fields | {"group": "nobody"})
    assert "no project or team" in fault_of(bad, "group")


def test_home_shows_what_runs_what_it_costs_an_hour_and_what_ended(
    people: Personas, browse: Browse
) -> None:
    finish(run_job(make_job(people.vision, people.bob, name="yesterday's")))
    run_job(make_job(people.vision, people.bob, name="wide", nodes=2))
    seen = text_of(browse(people.vera).get("/"))
    assert "$7.20 an hour right now" in seen
    assert seen.index("wide Vision Running on node lab-1") < seen.index("yesterday's Vision")
    assert "wide" not in text_of(browse(people.charlie).get("/"))


def test_a_project_shows_what_runs_in_it_what_it_costs_and_what_ended(
    people: Personas, browse: Browse
) -> None:
    finish(run_job(make_job(people.vision, people.bob, name="yesterday's")))
    run_job(make_job(people.vision, people.bob, name="wide", nodes=2))
    vera = browse(people.vera)
    seen = text_of(vera.get("/p/vision"))
    assert seen.index("wide Running on node lab-1") < seen.index("yesterday's")
    assert "$7.20 an hour now" in text_of(vera.get("/p/vision/overview/spend"))


@pytest.mark.thorough
@pytest.mark.parametrize("page", ["/", "/p/vision"])
def test_no_more_is_asked_for_many_jobs_than_for_few(
    people: Personas, browse: Browse, page: str
) -> None:
    vera = browse(people.vera)
    counts = []
    for batch in (8, 8):
        for _ in range(batch):
            run_job(make_job(people.vision, people.bob))
        vera.get(page)
        with CaptureQueriesContext(connection) as queries:
            assert vera.get(page).status_code == 200
        counts.append(len(queries))
    assert counts[1] <= counts[0] <= 30


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q=wide", "wide job of Vision"),
        ("q=new job&project=vision", "New job action"),
        ("q=nodes", "Settings: Nodes page"),
    ],
)
def test_the_palette_finds_jobs_and_the_pages_about_them(
    people: Personas, browse: Browse, query: str, expected: str
) -> None:
    make_job(people.vision, people.bob, name="wide")
    User.objects.filter(pk=people.bob.pk).update(is_administrator=True)
    bob: Any = browse(User.objects.get(pk=people.bob.pk))
    assert expected in text_of(bob.get(f"/palette?{query}"))
    assert "wide" not in text_of(browse(people.charlie).get("/palette?q=wid"))


def test_the_discount_of_a_tier_is_on_its_page(people: Personas, browse: Browse) -> None:
    root = browse(people.root)
    changes = {"price": "3.60", "preemptible_discount": "25"}
    assert "Preemptible: $2.70 an hour" in text_of(
        root.post("/settings/tiers/small", changes, follow=True)
    )
    root.post("/settings/tiers/new", _new_tier(preemptible_discount="0"))
    discounts = dict(Tier.objects.values_list("slug", "preemptible_discount"))
    assert (discounts["small"], discounts["one-h100"]) == (25, 0)
