"""Node groups on pages of administrators: the list, a new one, machines and cost, the end."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from portal.compute.models import GroupMachine, NodeGroup
from portal.core import clock
from portal.core.clock import frozen
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import fault_of, text_of
from tests.portal.workloads.cloud import Cloud, make_group, registered_cloud, step
from tests.portal.workloads.machines import make_tier, run, stand_in_kinds, submit


@pytest.fixture(autouse=True)
def cloud() -> Iterator[Cloud]:
    with registered_cloud() as made, stand_in_kinds():
        yield made


def form(**changes: str) -> dict[str, str]:
    """Return the fields of a new group."""
    fields = {
        "name": "burst",
        "provisioner": "local",
        "cpus": "2",
        "memory_gib": "4",
        "gpus": "0",
        "settings": "machines=3",
        "min_nodes": "0",
        "max_nodes": "3",
        "max_starting": "1",
        "idle_minutes": "2.5",
        "join_minutes": "10",
        "price": "0.25",
        "audience": "all",
        "projects": "",
    }
    return fields | changes


def test_a_group_is_created_changed_closed_and_removed(people: Personas, browse: Browse) -> None:
    root = browse(people.root)
    assert "No node groups yet" in text_of(root.get("/settings/node-groups"))
    refused = root.post("/settings/node-groups/new", form(settings="machines=0"))
    assert "from 1 to 64" in fault_of(refused, "settings")
    refused = root.post("/settings/node-groups/new", form(min_nodes="4"))
    assert "from 0 to max_nodes" in fault_of(refused, "min_nodes")
    done = root.post("/settings/node-groups/new", form())
    assert (done.status_code, done["Location"]) == (302, "/settings/node-groups/burst")
    group = NodeGroup.objects.get()
    assert (group.idle_grace_s, group.nano_usd_per_hour) == (150, 250_000_000)
    assert group.settings == {"machines": 3}
    saved = root.post("/settings/node-groups/burst", form(audience="some", projects="vision"))
    assert saved.status_code == 302
    assert "vision" in text_of(root.get("/settings/node-groups/burst"))
    root.post("/settings/node-groups/burst/change", {"do": "close"})
    group.refresh_from_db()
    assert not group.is_open
    assert "It has no machine" in text_of(root.get("/settings/node-groups/burst/remove"))
    root.post("/settings/node-groups/burst/remove")
    assert "No node groups yet" in text_of(root.get("/settings/node-groups"))


def test_the_page_of_a_group_says_what_holds_its_nodes_and_what_idle_ones_cost(
    people: Personas, browse: Browse, cloud: Cloud
) -> None:
    make_group(idle_grace_s=3600)
    tier = make_tier(cpus=4)
    job = submit(people.vision, people.bob, tier)
    step()
    cloud.boot_all()
    step()
    run(job)
    step()
    page = text_of(browse(people.root).get("/settings/node-groups/gpu"))
    assert "1 of 3" in page
    # Administrators do not see into projects by that alone.
    assert "another project's job" in page
    assert job.name not in page
    GroupMachine.objects.update(idle_since=clock.now(), started_at=clock.now())
    with frozen(clock.now() + timedelta(minutes=30)):
        page = text_of(browse(people.root).get("/settings/node-groups/gpu"))
        assert "$0.50: 30 min" in page


def test_the_page_of_a_group_has_the_words_of_the_provisioner(
    people: Personas, browse: Browse, cloud: Cloud
) -> None:
    make_group()
    submit(people.vision, people.bob, make_tier(cpus=4))
    cloud.refusal = "You have requested more vCPU capacity than your limit"
    step()
    page = text_of(browse(people.root).get("/settings/node-groups/gpu"))
    assert "No machine is requested before" in page
    assert "more vCPU capacity" in page
    assert "failed" in page


def test_the_pages_are_for_administrators(people: Personas, browse: Browse) -> None:
    make_group()
    for path in ("", "/new", "/gpu", "/gpu/remove"):
        assert browse(people.alice).get(f"/settings/node-groups{path}").status_code in (403, 404)
