"""A node that cannot keep projects apart runs the work of one project at a time."""

from datetime import timedelta
from typing import Any

import pytest

from portal.accounts.services.projects import create_project
from portal.compute.models import Node
from portal.core import clock
from portal.workloads.models import Workload
from portal.workloads.reconciler import reconcile
from portal.workloads.scheduling import run_passes
from portal.workloads.specs import spec_from
from slipway.schemas.agent import IsolationFacts
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import (
    NOTEBOOK,
    REPLICA,
    Machine,
    after,
    finish,
    leases_of,
    make_machine,
    make_tier,
    run,
    states_of,
    submit,
)

pytestmark = pytest.mark.postgres

DOCKER = spec_from(argv=("python", "train.py"), backend="docker")
SHARED = (IsolationFacts(backend="process", level="shared", detail="User namespaces are off."),)
CONTAINERS = IsolationFacts(backend="docker", level="containers", features=["network"])


def laptop(name: str = "laptop", **changes: Any) -> Machine:
    """Join a machine whose back end `process` keeps nobody apart."""
    return make_machine(name, **({"isolation": SHARED} | changes))


def explained(workload: Workload, api: Api) -> str:
    project = workload.project.slug
    shown = json_of(api.get(f"projects/{project}/workloads/{workload.pk}"))
    return str(shown["explanation"])


def test_a_node_that_reports_nothing_runs_one_project_at_a_time(people: Personas) -> None:
    make_machine("old", isolation=())
    tier = make_tier()
    first = submit(people.vision, people.bob, tier)
    run_passes()
    second = submit(people.other, people.charlie, tier)
    third = submit(people.vision, people.bob, tier)
    run_passes()
    assert states_of(first, second) == ["placed", "queued"]
    finish(first)
    run_passes()
    assert states_of(second, third) == ["placed", "queued"]


def test_one_pass_never_mixes_two_projects(people: Personas) -> None:
    laptop(cpus=8)
    tier = make_tier()
    jobs = [submit(people.vision, people.bob, tier), submit(people.other, people.charlie, tier)]
    run_passes()
    assert sorted(states_of(*jobs)) == ["placed", "queued"]
    more = submit(jobs[0].project, people.bob, tier)
    assert states_of(more) == ["queued"]


def test_namespaces_users_and_containers_are_shared_by_projects(people: Personas) -> None:
    tier = make_tier()
    for level in ("namespaces", "users"):
        make_machine(level, cpus=2, isolation=[IsolationFacts(backend="process", level=level)])
    make_machine("old-engine", cpus=2, backends=("docker",), isolation=())
    for spec in (None, None, DOCKER):
        options = {} if spec is None else {"spec": spec}
        for project, by in ((people.vision, people.bob), (people.other, people.charlie)):
            submit(project, by, tier, **options)
    run_passes()
    assert not Workload.objects.filter(state="queued").exists()
    for node in Node.objects.all():
        assert node.tasks == 2


@pytest.mark.parametrize("kind", [NOTEBOOK.name, REPLICA.name, "job"])
def test_every_kind_counts(people: Personas, kind: str) -> None:
    laptop()
    tier = make_tier()
    holder = submit(people.vision, people.bob, tier, kind=kind)
    run_passes()
    run(holder)
    waiting = [
        submit(people.other, people.charlie, tier, kind=kind)
        for kind in ("job", NOTEBOOK.name, REPLICA.name)
    ]
    run_passes()
    assert states_of(*waiting) == ["queued"] * 3
    finish(holder)
    run_passes()
    assert states_of(*waiting) == ["placed"] * 3


def test_containers_stay_away_from_a_node_where_another_project_shares_the_user(
    people: Personas,
) -> None:
    """A task that runs as the node's own user reads what the agent keeps for containers too."""
    laptop(backends=("process", "docker"), isolation=[*SHARED, CONTAINERS])
    tier = make_tier()
    bare = submit(people.vision, people.bob, tier)
    run_passes()
    contained = submit(people.other, people.charlie, tier, spec=DOCKER)
    run_passes()
    assert states_of(bare, contained) == ["placed", "queued"]
    finish(bare)
    run_passes()
    also = submit(people.vision, people.bob, tier, spec=DOCKER)
    next_bare = submit(people.vision, people.bob, tier)
    run_passes()
    assert states_of(contained, also, next_bare) == ["placed", "placed", "queued"]


def test_a_gang_gets_nodes_that_nobody_else_uses(people: Personas) -> None:
    for name in ("a", "b"):
        laptop(name, cpus=4)
    one, two = make_tier("one"), make_tier("two", cpus=2)
    other = submit(people.other, people.charlie, one)
    run_passes()
    gang = submit(people.vision, people.bob, two, nodes=3)
    small = submit(people.other, people.charlie, one)
    late = submit(people.vision, people.bob, two, nodes=2)
    run_passes()
    assert states_of(other, gang) == ["placed", "queued"]
    assert states_of(small, late) == ["queued", "queued"], "both nodes are reserved for the gang"
    finish(other)
    run_passes()
    assert states_of(gang) == ["placed"]
    assert {lease.node.name for lease in leases_of(gang)} == {"a", "b"}
    assert states_of(small) == ["queued"]


def test_a_project_that_keeps_submitting_cannot_hold_a_node_for_ever(people: Personas) -> None:
    machine, tier = laptop(cpus=2), make_tier()
    start = clock.now()
    stream = [submit(people.vision, people.bob, tier) for _ in range(2)]
    run_passes()
    waiting = submit(people.other, people.charlie, tier)
    rounds = 0
    while states_of(waiting) == ["queued"]:
        rounds += 1
        assert rounds < 5, "the other project never gets the node"
        oldest = stream.pop(0)
        with clock.frozen(start + timedelta(minutes=rounds)):
            machine.beat()
            stream.append(submit(people.vision, people.bob, tier))
            finish(oldest)
            run_passes()
    assert states_of(waiting) == ["placed"]


@pytest.mark.parametrize("is_head", [True, False])
def test_who_waits_elsewhere_does_not_let_a_project_starve(people: Personas, is_head: bool) -> None:
    """Room is kept for one head, on the node where least is missing for it."""
    cards = make_machine("cards", gpus=1)
    laptop(cpus=2)
    tier, card = make_tier(), make_tier("card", gpus=1)
    stream = [submit(people.vision, people.bob, tier, priority=5) for _ in range(2)]
    third = create_project(by=people.charlie, name="Third")
    busy = submit(people.vision, people.bob, card)
    Node.objects.filter(pk=cards.node.pk).update(cpu_millis=1000)
    run_passes()
    # With equal use the project that is older goes first.
    first, second = (people.other, third) if is_head else (third, people.other)
    head = submit(second, people.charlie, card)
    waiting = submit(first, people.charlie, tier)
    run_passes()
    assert states_of(busy, head, waiting) == ["placed", "queued", "queued"]
    for _ in range(3):
        stream.append(submit(people.vision, people.bob, tier))
        finish(stream.pop(0))
        run_passes()
    assert states_of(head, waiting) == ["queued", "placed"]


def test_short_work_of_the_same_project_fills_the_time_until_the_node_is_free(
    people: Personas,
) -> None:
    laptop(cpus=2)
    tier = make_tier()
    long = submit(people.vision, people.bob, tier, max_lifetime_s=7200)
    run_passes()
    waiting = submit(people.other, people.charlie, tier)
    brief = submit(people.vision, people.bob, tier, max_lifetime_s=600)
    endless = submit(people.vision, people.bob, tier)
    run_passes()
    assert states_of(long, waiting, brief, endless) == ["placed", "queued", "placed", "queued"]


def test_a_waiting_workload_says_why_without_naming_the_other_tenant(people: Personas) -> None:
    laptop()
    tier = make_tier()
    submit(people.other, people.charlie, tier, name="secret plans")
    run_passes()
    waiting = submit(people.vision, people.bob, tier)
    run_passes()
    sentence = explained(waiting, Api.of(people.vera))
    assert sentence == (
        "Waiting: node laptop cannot isolate projects and is running another project's work; it "
        "becomes available when that work ends. An administrator can allow projects to mix in "
        "the node's settings."
    )
    gang = submit(people.vision, people.bob, tier, nodes=2)
    sentence = explained(gang, Api.of(people.vera))
    assert "node laptop cannot isolate projects" in sentence
    assert "secret" not in sentence


def test_an_administrator_lets_a_node_mix_projects(people: Personas) -> None:
    laptop()
    tier = make_tier()
    first = submit(people.vision, people.bob, tier)
    second = submit(people.other, people.charlie, tier)
    run_passes()
    assert sorted(states_of(first, second)) == ["placed", "queued"]
    root = Api.of(people.root)
    answer = root.patch("nodes/laptop", {"mixes_projects": True})
    assert answer.status_code == 200
    assert json_of(answer)["mixes_projects"] is True
    run_passes()
    assert states_of(first, second) == ["placed", "placed"]
    assert json_of(root.patch("nodes/laptop", {"mixes_projects": False}))["mixes_projects"] is False
    third = submit(people.vision, people.bob, tier)
    run_passes()
    assert states_of(third) == ["queued"], "two projects run there still"


def test_a_node_that_is_drained_or_stopped_passes_on(people: Personas) -> None:
    """A job that is moved away queues again and does not keep its own node from the others."""
    laptop()
    tier = make_tier()
    job = submit(people.vision, people.bob, tier)
    run_passes()
    run(job)
    waiting = submit(people.other, people.charlie, tier)
    root = Api.of(people.root)
    assert root.post("nodes/laptop/drain", {}).status_code == 200
    reconcile()
    finish(job, "preempted")
    assert root.post("nodes/laptop/uncordon").status_code == 200
    with clock.frozen(after(1)):
        run_passes()
    assert sorted(states_of(job, waiting)) == ["placed", "queued"]


def test_what_a_form_offers_counts_for_the_project_that_asks(people: Personas) -> None:
    laptop(cpus=3)
    tier = make_tier()
    submit(people.other, people.charlie, tier)
    run_passes()
    quote = json_of(
        Api.of(people.bob).post(
            "projects/vision/jobs/quote",
            {"script": "train.py", "snapshot": "0" * 64, "tier": "small"},
        )
    )
    assert quote["would_wait"] is True
    assert "isolate projects" in quote["explanation"]
