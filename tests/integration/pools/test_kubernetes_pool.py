"""A pool in a real Kubernetes cluster (`make test-kubernetes`): jobs from submission to the end."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.forwarder import forwarded
from tests.integration.pools.jobs import (
    JOBS,
    SAVER,
    SCRIPT,
    log_of,
    prepare,
    submit,
    wait_for_state,
    workload_of,
)
from tests.jobs import Jobs
from tests.kubernetes_cluster import (
    NAMESPACE,
    NODE,
    USER_ID,
    KubernetesCluster,
    manifests_of,
    reason_without,
    running_kubernetes,
)
from tests.portals import RunningPortal, running_slipway
from tests.ports import free_ports
from tests.processes import ROOT, wait_for

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(reason_without()), reason=f"no Kubernetes: {reason_without()}"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """A cluster of one node."""
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes") / "cluster") as running:
        yield running


@pytest.fixture(scope="module")
def slipway(
    tmp_path_factory: pytest.TempPathFactory, cluster: KubernetesCluster
) -> Iterator[RunningPortal]:
    """A Slipway with a pool in that cluster."""
    (port,) = free_ports(1)
    address = f"http://{cluster.address}:{port}"
    folder = tmp_path_factory.mktemp("slipway")
    with running_slipway(folder, SLIPWAY_PUBLIC_URL=address) as portal:
        settings = cluster.settings(has_shared_folder=True)
        pool = {"name": "twin", "engine": "kubernetes", "settings": settings}
        with forwarded(cluster.address, {port: portal.installation.portal_port}):
            with portal.client("root") as root:
                prepare(root, pool)
            yield portal


def _running_pod(cluster: KubernetesCluster) -> Any:
    (pod,) = [pod for pod in cluster.pods() if pod.status.phase == "Running"]
    return pod


def test_two_tasks_train_in_two_pods(slipway: RunningPortal, cluster: KubernetesCluster) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, nodes=2)
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "succeeded", ended["explanation"]
        assert "rank 0 of 2" in log_of(root, job_id)
        assert "rank 1 of 2" in log_of(root, job_id, rank=1)
        wait_for(lambda: root.get("/pools/twin").json()["requests"] == 0, "end", within_s=60)
        assert len(root.get("/nodes").json()["items"]) == 1
        assert root.get(f"{JOBS}/{job_id}").json()["cost_nano_usd"] > 0
    pods = cluster.pods()
    assert [pod.status.phase for pod in pods] == ["Succeeded", "Succeeded"]


def test_the_times_of_pods_are_beside_the_bill(
    slipway: RunningPortal, cluster: KubernetesCluster
) -> None:
    with slipway.client("root") as root:
        before = root.get("/pools/twin/usage").json()["allocations"]
        job_id = submit(root, script="import time; time.sleep(3)", nodes=2)
        assert wait_for_state(root, job_id, "succeeded", "failed")["state"] == "succeeded"

        def usage() -> dict[str, Any]:
            answer: dict[str, Any] = root.get("/pools/twin/usage").json()
            return answer

        wait_for(lambda: usage()["accounted"] == before + 1, "accounting", within_s=120)
        latest = usage()["latest"][0]
        pods = [pod for pod in cluster.pods() if pod.metadata.name.startswith(latest["handle"])]
    spans = [
        (
            pod.status.container_statuses[0].state.terminated.finished_at - pod.status.start_time
        ).total_seconds()
        for pod in pods
    ]
    assert len(spans) == 2
    assert abs(latest["accounted_s"] - sum(spans)) <= 1
    assert latest["resources"] == "pods=2,cpu=500m,memory=1024Mi"
    # Pods hold their node from before the agents join until after they have left.
    assert latest["billed_s"] < latest["accounted_s"]
    assert latest["billed_nano_usd"] < latest["accounted_nano_usd"]


def test_a_task_is_the_user_of_the_pool_and_has_no_token_of_the_cluster(
    slipway: RunningPortal, cluster: KubernetesCluster
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script=_PROBE)
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        log = log_of(root, job_id)
        assert ended["state"] == "succeeded", log
        assert f"user {USER_ID}" in log
        assert "capabilities 0000000000000000" in log
        assert "no_new_privs 1" in log
        assert "token None" in log
        assert "join []" in log


_PROBE = """
import os
from pathlib import Path
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print("user", os.getuid())
print("capabilities", status["CapEff"].strip())
print("no_new_privs", status["NoNewPrivs"].strip())
account = Path("/var/run/secrets/kubernetes.io/serviceaccount")
print("token", list(account.iterdir()) if account.exists() else None)
print("join", [name for name in os.environ if "TOKEN" in name and "JOIN" in name])
"""


def test_the_words_of_the_scheduler_are_the_reason(
    slipway: RunningPortal, cluster: KubernetesCluster
) -> None:
    cluster.cordon(True)
    with slipway.client("root") as root:
        job_id = submit(root)
        wait_for(
            lambda: "1 node(s) were unschedulable" in workload_of(root, job_id)["explanation"],
            "reason of Kubernetes",
            within_s=60,
        )
        assert "Kubernetes says about sw-" in workload_of(root, job_id)["explanation"]
        cluster.cordon(False)
        assert wait_for_state(root, job_id, "succeeded", "failed")["state"] == "succeeded"


def test_a_job_that_is_cancelled_in_slipway_saves_and_its_pod_ends(
    slipway: RunningPortal, cluster: KubernetesCluster
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script=SAVER)
        wait_for(lambda: "starts at 0" in log_of(root, job_id), "first lines", within_s=120)
        pod = _running_pod(cluster).metadata.name
        root.post(f"{JOBS}/{job_id}/cancel", json={}).raise_for_status()
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "stopped", ended
        assert "saved" in log_of(root, job_id)
        wait_for(
            lambda: {p.metadata.name: p.status.phase for p in cluster.pods()}.get(pod) != "Running",
            "end of the pod",
            within_s=60,
        )


def test_a_job_whose_pod_is_deleted_saves_and_is_stopped(
    slipway: RunningPortal, cluster: KubernetesCluster
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script=SAVER)
        wait_for(lambda: "starts at 0" in log_of(root, job_id), "first lines", within_s=120)
        pod = _running_pod(cluster)
        cluster.api.delete_namespaced_pod(pod.metadata.name, NAMESPACE)
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "stopped", ended
        assert "cancelled in Kubernetes" in ended["explanation"]
        assert pod.metadata.name in ended["explanation"]
        assert "saved" in log_of(root, job_id)


def test_a_drained_node_costs_one_attempt_and_no_work(
    slipway: RunningPortal, cluster: KubernetesCluster
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script=SAVER)
        wait_for(lambda: "starts at 0" in log_of(root, job_id), "first lines", within_s=120)
        pod = _running_pod(cluster)
        assert pod.spec.node_name == NODE
        cluster.cordon(True)
        cluster.evict(pod.metadata.name)
        wait_for(
            lambda: "1 node(s) were unschedulable" in workload_of(root, job_id)["explanation"],
            "next allocation",
            within_s=120,
        )
        cluster.cordon(False)
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped")
        assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
        assert "starts at 7" in log_of(root, job_id)
        events = root.get(f"{JOBS}/{job_id}/events").json()["items"]
        reason = "Kubernetes preempted it: node n1 is cordoned, and its pods are evicted."
        assert reason in [event["message"] for event in events]


def test_an_api_server_that_is_away_loses_nothing_and_runs_nothing_twice(
    slipway: RunningPortal, cluster: KubernetesCluster
) -> None:
    before = {pod.metadata.name for pod in cluster.pods()}
    with slipway.client("root") as root:
        running = submit(root, script="import time; print('began', flush=True); time.sleep(15)")
        wait_for(lambda: "began" in log_of(root, running), "first lines", within_s=120)
        cluster.programs["kube-apiserver"].end()
        waiting = submit(root)
        wait_for(
            lambda: "Kubernetes does not answer" in workload_of(root, waiting)["explanation"],
            "the problem",
            within_s=120,
        )
        cluster.start("kube-apiserver")
        for job_id in (running, waiting):
            ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
            assert (ended["state"], ended["attempt"]) == ("succeeded", 1), ended
        wait_for(cluster.has_api, "API server", within_s=60)
        assert len({pod.metadata.name for pod in cluster.pods()} - before) == 2


def test_a_pool_that_kubernetes_refuses_says_so(
    slipway: RunningPortal, cluster: KubernetesCluster
) -> None:
    nobody = cluster.settings(
        kubeconfig=str(cluster.folder / "admin.kubeconfig"), impersonate="nobody"
    )
    with slipway.client("root") as root:
        pool = {"name": "locked", "engine": "kubernetes", "settings": nobody}
        root.post("/pools", json=pool).raise_for_status()
        job_id = submit(root, pool="locked")
        words = 'Kubernetes refuses the pool: .*User "nobody" cannot'
        wait_for(
            lambda: re.search(words, workload_of(root, job_id)["explanation"]),
            "the refusal",
            within_s=60,
        )
        root.post(f"{JOBS}/{job_id}/cancel", json={}).raise_for_status()


def test_each_project_runs_in_its_own_namespace_as_the_person(
    slipway: RunningPortal, cluster: KubernetesCluster
) -> None:
    namespace = cluster.create_project("vision")
    for document in manifests_of(ROOT / "deploy" / "kubernetes" / "people.yaml"):
        place = document["metadata"].get("namespace") and {"namespace": namespace}
        cluster.apply({**document, "metadata": document["metadata"] | (place or {})})
    settings = cluster.settings(
        project_namespace="slipway-{project}",
        service_account="jobs",
        as_person=True,
        people="root@example.org=alice",
    )
    with slipway.client("root") as root:
        pool = {"name": "projects", "engine": "kubernetes", "settings": settings}
        root.post("/pools", json=pool).raise_for_status()
        root.post("/projects", json={"name": "Homeless"}).raise_for_status()
        job_id = submit(root, pool="projects")
        homeless = Jobs(root, project="homeless")
        failed = homeless.end_of(homeless.submit(SCRIPT, tier="cpu-tiny", pool="projects"))
        assert "slipway-homeless of project homeless does not exist, or" in failed["explanation"]
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "succeeded", ended
    (pod,) = cluster.pods(namespace)
    assert pod.spec.service_account_name == "jobs"
