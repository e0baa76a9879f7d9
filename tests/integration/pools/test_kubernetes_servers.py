"""Work in pods beside plain jobs: notebooks and replicas through the relay, sweeps, shells."""

from collections.abc import Iterator
from typing import Any

import pytest

from slipway.resources.sweeps import sweep_body
from slipway.schemas.training import JobIn
from tests.forwarder import forwarded
from tests.integration.pools.jobs import TINY
from tests.integration.serving.living import Endpoints
from tests.jobs import Jobs
from tests.kubernetes_cluster import (
    NAMESPACE,
    USER_ID,
    KubernetesCluster,
    reason_without,
    running_kubernetes,
)
from tests.notebooks import PASSWORD, Person, running_notebooks
from tests.portals import RunningPortal
from tests.ports import free_ports
from tests.processes import wait_for
from tests.terminals import Terminal

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(reason_without()), reason=f"no Kubernetes: {reason_without()}"),
]
_STARTS_WITHIN_S = 300.0
_TRIAL = """
import argparse, mlflow
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
mlflow.log_metric("accuracy", parser.parse_args().lr)
"""
_WAITS = """
import pathlib, time
while not pathlib.Path("go-on").exists():
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """A cluster of one node."""
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes") / "cluster") as running:
        yield running


@pytest.fixture(scope="module")
def slipway(
    tmp_path_factory: pytest.TempPathFactory, cluster: KubernetesCluster
) -> Iterator[RunningPortal]:
    """All of Slipway with a pool in that cluster. Pods reach the portal, the relay and the Hub."""
    folder = tmp_path_factory.mktemp("slipway")
    (port, notebooks) = free_ports(2)
    with running_notebooks(
        folder,
        SLIPWAY_EMBEDDED_RELAY="true",
        SLIPWAY_EMBEDDED_GATEWAY="true",
        SLIPWAY_PUBLIC_URL=f"http://{cluster.address}:{port}",
        SLIPWAY_NOTEBOOKS_PUBLIC_URL=f"http://{cluster.notebooks_address}:{notebooks}",
    ) as portal:
        at = portal.installation
        with (
            forwarded(cluster.address, {port: at.portal_port, at.relay_port: at.relay_port}),
            forwarded(cluster.notebooks_address, {notebooks: at.notebooks_port}),
        ):
            with portal.client("root") as root:
                root.post("/tiers", json=TINY).raise_for_status()
                pool = {
                    "name": "twin",
                    "engine": "kubernetes",
                    "settings": cluster.settings(has_shared_folder=True),
                }
                root.post("/pools", json=pool).raise_for_status()
                (node,) = root.get("/nodes").json()["items"]
                root.post(f"/nodes/{node['name']}/cordon", json={}).raise_for_status()
            portal.program.wait_for_text("relay ready", within_s=120)
            yield portal


@pytest.fixture(scope="module")
def bob(slipway: RunningPortal) -> Person:
    """Somebody who works in the project."""
    portal = slipway.installation.environ["SLIPWAY_PUBLIC_URL"]
    return Person(slipway, "bob", PASSWORD, portal=portal)


@pytest.fixture(scope="module")
def endpoints(slipway: RunningPortal) -> Endpoints:
    """A project with endpoints."""
    return Endpoints(slipway)


def _running_pods(cluster: KubernetesCluster) -> set[str]:
    return {pod.metadata.name for pod in cluster.pods() if pod.status.phase == "Running"}


def _wait_for_no_pod(cluster: KubernetesCluster) -> None:
    wait_for(lambda: not _running_pods(cluster), "end of the pods", within_s=120)


def test_a_notebook_runs_in_a_pod_and_says_why_it_ended(
    bob: Person, cluster: KubernetesCluster
) -> None:
    server = bob.launch("pooled", pool="twin")
    bob.wait_for(server, "ready", within_s=_STARTS_WITHIN_S)
    desk = bob.open(server)
    assert desk.run(desk.kernel(), "import os; print(os.getuid())").strip() == str(USER_ID)
    assert "hello" in desk.type("echo hello")
    (pod,) = _running_pods(cluster)
    cluster.api.delete_namespaced_pod(pod, NAMESPACE)
    shown = bob.wait_for(server, "stopped", within_s=120)
    assert pod in shown["explanation"], shown
    _wait_for_no_pod(cluster)


def _replicas(endpoints: Endpoints, state: str = "ready") -> dict[str, dict[str, Any]]:
    rows = endpoints.call("GET", "endpoints/doubling/replicas")
    return {row["id"]: row for row in rows if row["state"] == state}


def test_a_replica_in_a_pod_answers_and_is_replaced_when_its_pod_is_deleted(
    endpoints: Endpoints, cluster: KubernetesCluster
) -> None:
    endpoints.create("doubling", endpoints.register(2, golden=2), pool="twin", tier="cpu-tiny")
    endpoints.until("doubling", 2, within_s=_STARTS_WITHIN_S)
    (pod,) = _running_pods(cluster)
    (before,) = _replicas(endpoints)
    cluster.api.delete_namespaced_pod(pod, NAMESPACE)
    wait_for(
        lambda: _replicas(endpoints).keys() - {before},
        "replica in place of the deleted one",
        within_s=_STARTS_WITHIN_S,
    )
    endpoints.until("doubling", 2, within_s=60)
    assert pod not in _running_pods(cluster)
    rows = {row["id"]: row for row in endpoints.call("GET", "endpoints/doubling/replicas")}
    assert "pool twin" in rows[before]["reason"], rows[before]
    endpoints.call("POST", "endpoints/doubling/pause", {})
    _wait_for_no_pod(cluster)


def test_a_shell_opens_in_a_pod(slipway: RunningPortal, endpoints: Endpoints) -> None:
    slug = endpoints.path.rpartition("/")[2]
    jobs = Jobs(endpoints.api, project=slug)
    job = jobs.submit(_WAITS, pool="twin", tier="cpu-tiny", keep=[])
    jobs.wait_for(job, "running", within_s=_STARTS_WITHIN_S)
    terminal = Terminal(slipway, "job", "shell", job, "--project", slug)
    terminal.until(r"[$#] ")
    terminal.type("echo me=$SLIPWAY_WORKLOAD user=$(id -u); touch go-on; exit 7\n")
    terminal.until(f"me={job} user={USER_ID}")
    assert terminal.end() == 7
    assert jobs.end_of(job, within_s=120)["state"] == "succeeded"


def test_a_sweep_runs_its_trials_in_pods(endpoints: Endpoints, cluster: KubernetesCluster) -> None:
    jobs = Jobs(endpoints.api, project=endpoints.path.rpartition("/")[2])
    snapshot = jobs.snapshot(_TRIAL)
    job = JobIn(script="train.py", tier="cpu-tiny", pool="twin", snapshot=snapshot)
    body = sweep_body(
        job,
        name="digits",
        parameters={"lr": "choice(0.1,0.2)"},
        metric="accuracy:max",
        trials=2,
        parallel=2,
        algorithm="grid",
    )
    sweep = endpoints.call("POST", "sweeps", body.model_dump(mode="json"))["id"]
    wait_for(
        lambda: endpoints.call("GET", f"sweeps/{sweep}")["state"] != "running",
        "end of the sweep",
        within_s=_STARTS_WITHIN_S,
    )
    shown = endpoints.call("GET", f"sweeps/{sweep}")
    assert (shown["state"], shown["complete"]) == ("finished", 2), shown
    assert shown["best"]["value"] == pytest.approx(0.2)
    _wait_for_no_pod(cluster)
