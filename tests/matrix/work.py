"""What the rooms of work add to the world of the matrix: machines, jobs that run, their traces.

Each tenant has a job that runs on a node of its own, and an empty node stands beside it.
"""

import hashlib
import io
import tarfile
from dataclasses import dataclass
from datetime import timedelta

from portal.accounts.models import Project, User
from portal.compute.models import Node
from portal.compute.resources import GIB, Amount
from portal.compute.services.environments import use_environment
from portal.compute.services.node_registration import create_join_token, join_node
from portal.compute.services.nodes import cordon_node, uncordon_node
from portal.compute.services.tiers import create_tier
from portal.core import clock
from portal.experiments.factories import opener
from portal.experiments.models import Experiment, SavedView
from portal.experiments.ports import NewRun
from portal.storage.services import receive_bytes
from portal.training.services.checkpoint_copies import store_copy
from portal.training.services.jobs import submit_job
from portal.training.services.snapshots import store_snapshot
from portal.workloads.models import Lease
from portal.workloads.scheduling import run_passes
from portal.workloads.services.heartbeats import heartbeat
from portal.workloads.services.logs import append_log
from portal.workloads.services.reports import accept_reports
from portal.workloads.services.shells import open_shell
from portal.workloads.services.snapshots import apply_build_report
from portal.workloads.tokens import token_of
from slipway.schemas.agent import (
    EnvironmentReport,
    Heartbeat,
    IsolationFacts,
    NodeFacts,
    TaskReport,
)
from slipway.schemas.training import JobIn
from slipway.schemas.workloads import Resources
from tests.checkpoints import make_packed

# Of the checkpoint that each job has in the store.
STEP = 612371
FACTS = NodeFacts(
    capacity=Resources(cpu_millis=4000, memory_bytes=16 * GIB),
    backends=["process"],
    address="127.0.0.1",
    agent_version="test",
    isolation=[IsolationFacts(backend="process", level="namespaces", features=["network"])],
)


@dataclass(frozen=True)
class Work:
    """What one tenant runs, by the kinds of `Parameter`, and the secrets that speak for it."""

    objects: dict[str, str]
    node_secret: str
    workload_token: str


def beat(running: list[dict[str, object]]) -> dict[str, object]:
    """Return the body of a heartbeat."""
    return {
        "boot_id": "boot-1",
        "facts": FACTS.model_dump(mode="json"),
        "cpu_percent": 1.0,
        "memory_used_bytes": GIB,
        "running": running,
    }


def code(text: str) -> bytes:
    """Return a snapshot: a tar of one script."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("train.py")
        member.size = len(text.encode())
        archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def make_tiers() -> None:
    """Offer the one tier everything runs on."""
    amount = Amount(1000, GIB)
    create_tier(name="CPU small", slug="cpu-small", amount=amount, nano_usd_per_hour=10**7)


def make_work(*, owner: User, project: Project, node: str) -> Work:
    """Let a job of the project run on a fresh node of that name, which takes nothing else."""
    snapshot = store_snapshot(
        project=project, by=owner, stored=receive_bytes(chunks=iter([code(owner.email)]))
    )
    requirements = f"tenant-{owner.name.lower()}==1.0"
    joined, secret = _join(node)
    job = submit_job(
        project=project,
        by=owner,
        requested=JobIn(
            name=f"job of {owner.name}",
            snapshot=snapshot.digest,
            script="train.py",
            tier="cpu-small",
            requirements=requirements,
        ),
    )
    run_passes()
    lease = Lease.objects.select_related("node", "workload").get(workload=job.workload)
    assert lease.node == joined
    _let_run(lease)
    cordon_node(node=joined)
    spare, _ = _join(f"{node}-spare")
    cordon_node(node=spare)
    objects = {
        "job": job.pk,
        "workload": job.workload.pk,
        "shell": open_shell(workload=lease.workload, rank=0, by=owner).pk,
        "snapshot": snapshot.digest,
        "environment": use_environment(project=project, by=owner, requirements=requirements).digest,
        "node": spare.name,
        "task": lease.task_id,
        "epoch": str(lease.epoch),
        "rank": "0",
        "step": str(STEP),
    }
    return Work(objects, secret, token_of(job.workload.pk, lease.epoch))


def make_tracked(*, project: Project, by: User) -> dict[str, str]:
    """Track a run of an experiment that is called the same in every tenant."""
    run = NewRun(
        id=hashlib.sha256(project.pk.encode()).hexdigest()[:32],
        project_id=project.pk,
        experiment="digits",
        name=f"run of {by.name}",
        user=by.email,
        source="train.py",
        started_ms=1_790_000_000_000,
        tags={},
    )
    # A number long enough to be told apart from every other number on a page.
    experiment = Experiment.objects.create(
        pk=710_001 + Experiment.objects.count(),
        name=run.experiment,
        workspace=project.pk,
        lifecycle_stage="active",
    )
    opener().begin(run)
    view = SavedView.objects.create(project=project, name="best", query="q=run", saved_by=by)
    return {"run": run.id, "experiment": str(experiment.pk), "view": view.pk}


def open_nodes() -> None:
    """Give every node work again. They count as heard of for as long as any test takes."""
    for node in Node.objects.present():
        uncordon_node(node=node)
    Node.objects.update(last_seen_at=clock.now() + timedelta(days=1))


def new_join_secret() -> str:
    """Return a join token nobody has used."""
    return create_join_token(by=None).secret


def _join(name: str) -> tuple[Node, str]:
    joined = join_node(secret=new_join_secret(), name=name, details=FACTS)
    heartbeat(node=joined.node, beat=Heartbeat.model_validate(beat([])))
    return Node.objects.get(pk=joined.node.pk), joined.secret


def _let_run(lease: Lease) -> None:
    """Let the agent say what a running task makes it say."""
    for sequence, kind in enumerate(("starting", "running"), start=1):
        report = TaskReport.model_validate(
            {
                "task_id": lease.task_id,
                "epoch": lease.epoch,
                "sequence": sequence,
                "kind": kind,
                "at_unix_ms": int(lease.granted_at.timestamp() * 1000),
            }
        )
        assert not accept_reports(node=lease.node, reports=[report]).stale
    append_log(
        node=lease.node,
        task_id=lease.task_id,
        epoch=lease.epoch,
        rank=0,
        offset=0,
        pieces=[b"first line\n"],
    )
    store_copy(
        node=lease.node,
        task_id=lease.task_id,
        epoch=lease.epoch,
        step=STEP,
        chunks=[make_packed(STEP)],
        size_bytes=None,
    )
    apply_build_report(
        node=lease.node,
        digest=lease.workload.environment,
        report=EnvironmentReport(state="building", log_offset=0, log="collecting\n"),
    )
