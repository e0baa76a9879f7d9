"""Dockerfiles of jobs in pools: refused with the reason, built once, and ordered by digest."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from portal.accounts.models import Project
from portal.compute.adapters.engines.kubernetes.kind import KubernetesEngineKind
from portal.compute.engines import AllocationOrder, AllocationPhase, AllocationReport
from portal.compute.models import BuildRequest, EnvironmentBuild
from portal.core import clock
from portal.core.clock import frozen
from portal.workloads.allocations import tend_allocations
from portal.workloads.models import Allocation, Workload
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import submit, take_code
from tests.portal.workloads.machines import Machine, make_machine
from tests.security.problems import refusal

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("machine")]
REGISTRY = "registry.example.org/slipway"
DIGEST = f"sha256:{'ab' * 32}"
FILES = {"train.py": b"print(1)\n", "Dockerfile": b"FROM python:3.12-slim\nRUN true\n"}


class Cluster:
    """An engine that writes down its orders."""

    def __init__(self) -> None:
        self.orders: list[AllocationOrder] = []

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Everything waits."""
        return dict.fromkeys(handles, AllocationReport(AllocationPhase.WAITING))

    def submit(self, order: AllocationOrder) -> str:
        """Take every order."""
        self.orders.append(order)
        return order.name

    def stop(self, handle: str, *, account: str = "") -> None:
        """Do nothing."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The engine of every pool in Kubernetes."""
    engine = Cluster()
    monkeypatch.setattr(KubernetesEngineKind, "open", lambda *_: engine)
    return engine


@pytest.fixture
def root(people: Personas) -> Api:
    """The API as the administrator sees it, with a pool in Kubernetes."""
    root = Api.of(people.root)
    body = {"name": "k8s", "engine": "kubernetes", "settings": {"image": "slipway/node"}}
    assert root.post("pools", body).status_code == 201
    return root


@pytest.fixture
def builder(settings: Settings) -> Machine:
    """A node that builds images, for a registry."""
    settings.SLIPWAY_IMAGE_REGISTRY = REGISTRY
    return make_machine("builder", cpus=4, backends=("docker", "process"))


def body_of(bob: Api, **changes: Any) -> dict[str, Any]:
    """The body of a job with a Dockerfile in the pool."""
    return {"snapshot": take_code(bob, FILES), "pool": "k8s", "tier": "small"} | changes


def accepted(bob: Api) -> Workload:
    """The row of such a job."""
    answer = submit(bob, **body_of(bob))
    assert answer.status_code == 201, answer.content
    return Workload.objects.get(pk=json_of(answer)["workload"]["id"])


def explanation_of(bob: Api, workload: Workload) -> str:
    """The words for a person."""
    shown = json_of(bob.get(f"projects/vision/jobs/{workload.pk}"))
    text: str = shown["workload"]["explanation"]
    return text


def requested(builder: Machine) -> dict[str, Any]:
    """The one build that a node is to do."""
    builder.beat()
    (request,) = json_of(builder.call("GET", "desired?seen=0&wait_s=0"))["builds_ahead"]
    build: dict[str, Any] = request
    return build


def report(builder: Machine, workload: Workload, state: str, **changes: Any) -> None:
    """Report a build."""
    body = {"project": workload.project_id, "state": state, "log_offset": 0, "log": "", "build": 1}
    path = f"environments/{workload.environment}/reports"
    answer = builder.call("POST", path, body | changes)
    assert answer.status_code == 200, answer.content


def repository(workload: Workload) -> str:
    """The repository of the images of a project."""
    return f"{REGISTRY}/{workload.project_id.lower()}"


def test_a_dockerfile_is_refused_before_submission_with_the_reason(
    root: Api, bob: Api, settings: Settings
) -> None:
    named = body_of(bob, requirements_file="Dockerfile")
    problem = refusal(submit(bob, **named))
    assert (problem.code, problem.field) == ("no_images_in_pool", "requirements_file")
    assert "has no registry for images (SLIPWAY_IMAGE_REGISTRY)" in problem.detail
    settings.SLIPWAY_IMAGE_REGISTRY = REGISTRY
    assert "no node of the installation builds images" in refusal(submit(bob, **named)).detail
    root.post("pools", {"name": "hpc", "engine": "slurm", "settings": {"partition": "main"}})
    problem = refusal(submit(bob, **named | {"pool": "hpc"}))
    assert "its setting container_runtime names neither Enroot nor Apptainer" in problem.detail
    for name in ("docker", "/opt/../enroot -x", "enroot;id"):
        pool = {"name": "apps", "engine": "slurm", "settings": {"container_runtime": name}}
        assert "container_runtime is not valid" in refusal(root.post("pools", pool)).detail
    quote = json_of(bob.post("projects/vision/jobs/quote", body_of(bob, script="train.py")))
    assert "Dockerfile is not used in pool k8s: no node" in quote["packages"]["explanation"]


def test_an_image_is_built_once_and_ordered_by_its_digest(
    root: Api, bob: Api, builder: Machine, cluster: Cluster
) -> None:
    quote = json_of(bob.post("projects/vision/jobs/quote", body_of(bob, script="train.py")))
    assert quote["packages"]["explanation"].startswith("An image built from Dockerfile")
    workload = accepted(bob)
    tend_allocations()
    tend_allocations()
    assert cluster.orders == []
    assert "node builder builds its image and pushes it" in explanation_of(bob, workload)
    request = requested(builder)
    assert (request["digest"], request["project"]) == (workload.environment, workload.project_id)
    assert request["image"]["repository"] == repository(workload)
    assert request["image"]["resources"]["memory_bytes"] == workload.memory_bytes
    code = builder.call("GET", f"snapshots/{workload.snapshot}")
    assert code.status_code == 200
    image = f"{repository(workload)}@{DIGEST}"
    report(builder, workload, "ready", image=image, image_python="/usr/bin/python3")
    assert builder.call("GET", f"snapshots/{workload.snapshot}").status_code == 404
    tend_allocations()
    (order,) = cluster.orders
    assert order.image is not None
    assert (order.image.reference, order.image.python) == (image, "/usr/bin/python3")
    assert "builds its image" not in explanation_of(bob, workload)
    accepted(bob)
    tend_allocations()
    assert [order.image and order.image.reference for order in cluster.orders] == [image, image]
    assert not BuildRequest.objects.exists()


@pytest.mark.parametrize(
    "image",
    [
        f"registry.example.org/other@{DIGEST}",
        f"{REGISTRY}/prj_of_another@{DIGEST}",
        "{repository}:latest",
        "{repository}@sha256:short",
    ],
)
def test_a_node_cannot_name_another_image(
    root: Api, bob: Api, builder: Machine, cluster: Cluster, image: str
) -> None:
    workload = accepted(bob)
    tend_allocations()
    name = image.replace("{repository}", repository(workload))
    report(builder, workload, "ready", image=name, image_python="/usr/bin/python3")
    assert EnvironmentBuild.objects.get().image == ""
    tend_allocations()
    assert cluster.orders == []


def test_a_build_that_fails_ends_the_job_and_the_next_one_builds_again(
    root: Api, bob: Api, builder: Machine, cluster: Cluster
) -> None:
    workload = accepted(bob)
    tend_allocations()
    log = "Step 1/2\n\nThe image could not be built: line 2 of the Dockerfile failed.\n"
    report(builder, workload, "failed", log=log)
    tend_allocations()
    workload.refresh_from_db()
    assert (workload.state, workload.reason) == ("failed", "environment_failed")
    assert "line 2 of the Dockerfile failed" in explanation_of(bob, workload)
    with frozen(clock.now() + timedelta(seconds=1)):
        builder.beat()
        again = accepted(bob)
        tend_allocations()
        assert requested(builder)["digest"] == again.environment
        again.refresh_from_db()
        assert again.state == "queued"
    assert cluster.orders == []


def test_a_job_that_is_cancelled_before_its_image_is_there_is_never_ordered(
    root: Api, bob: Api, builder: Machine, cluster: Cluster
) -> None:
    workload = accepted(bob)
    tend_allocations()
    bob.post(f"projects/vision/jobs/{workload.pk}/cancel", {})
    tend_allocations()
    assert Allocation.objects.get().state == "ended"
    assert cluster.orders == []


def test_without_a_builder_a_job_waits_and_says_so(
    root: Api, bob: Api, builder: Machine, cluster: Cluster
) -> None:
    workload = accepted(bob)
    root.post("nodes/builder/cordon", {})
    tend_allocations()
    assert "no node that builds images (--backend docker)" in explanation_of(bob, workload)
    assert Project.objects.filter(slug="vision").exists()
    root.post("nodes/builder/uncordon", {})
    tend_allocations()
    assert requested(builder)["digest"] == workload.environment
