"""A Dockerfile in a pool, with all that is real: Docker builds it, a registry, and Kubernetes.

Run it through scripts/docker-test-engine.sh, beside the servers of scripts/build-kubernetes.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.forwarder import forwarded
from tests.image_registry import PROGRAM, ImageRegistry, running_registry
from tests.integration.pools.images import TIER, end_of, running_builder, submit
from tests.integration.pools.jobs import JOBS, log_of, prepare, wait_for_state
from tests.kubernetes_cluster import (
    NAMESPACE,
    USER_ID,
    KubernetesCluster,
    reason_without,
    running_kubernetes,
)
from tests.portals import RunningPortal, running_slipway
from tests.ports import free_ports
from tests.processes import wait_for

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(reason_without()), reason=f"no Kubernetes: {reason_without()}"),
    pytest.mark.skipif(not PROGRAM, reason="no Docker: use scripts/docker-test-engine.sh"),
]
PROBE = """
import os, pathlib, signal, sys, time
print("marker", pathlib.Path("/marker").read_text().strip(), flush=True)
print("variable", os.environ["OF_THE_IMAGE"], "user", os.getuid(), flush=True)
def read(path):
    try:
        return open(path).read()
    except OSError as error:
        return f"refused {error.errno}"
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    if "JOIN_TOKENS" in read(path):
        print("token in", path, flush=True)
print("identity", read("/var/lib/slipway/0/node.json")[:20], flush=True)
print("socket", os.path.exists("/run/slipway/task"), flush=True)
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRegistry]:
    """A registry that asks for an account."""
    with running_registry(tmp_path_factory.mktemp("images") / "registry") as registry:
        yield registry


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, registry: ImageRegistry
) -> Iterator[KubernetesCluster]:
    """A cluster of one node, with a Secret for the registry."""
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes") / "cluster") as running:
        secret = {
            "metadata": {"name": "registry"},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": registry.accounts.read_text()},
        }
        running.api.create_namespaced_secret(NAMESPACE, secret)
        yield running


@pytest.fixture(scope="module")
def slipway(
    tmp_path_factory: pytest.TempPathFactory, cluster: KubernetesCluster, registry: ImageRegistry
) -> Iterator[RunningPortal]:
    """A Slipway with a registry, a builder, and a pool in that cluster."""
    (port,) = free_ports(1)
    variables: dict[str, Any] = {
        "SLIPWAY_PUBLIC_URL": f"http://{cluster.address}:{port}",
        "SLIPWAY_IMAGE_REGISTRY": f"{registry.host}/slipway",
    }
    with running_slipway(tmp_path_factory.mktemp("slipway"), **variables) as portal:
        settings = cluster.settings(has_shared_folder=True, pull_secrets="registry")
        pool = {"name": "twin", "engine": "kubernetes", "settings": settings}
        with forwarded(cluster.address, {port: portal.installation.portal_port}):
            with portal.client("root") as root:
                prepare(root, pool)
                root.post("/tiers", json=TIER).raise_for_status()
            with running_builder(portal, registry):
                yield portal


def test_two_tasks_run_in_the_image_of_the_project(
    slipway: RunningPortal, cluster: KubernetesCluster, registry: ImageRegistry
) -> None:
    with slipway.client("root") as root:
        dockerfile = "FROM BASE\nRUN echo built-by-docker > /marker\nENV OF_THE_IMAGE=yes\n"
        job_id = submit(root, PROBE, dockerfile, nodes=2)
        ended = end_of(root, job_id)
        log = log_of(root, job_id)
        assert ended["state"] == "succeeded", (ended["explanation"], log)
        for rank in range(2):
            log = log_of(root, job_id, rank=rank)
            assert "marker built-by-docker" in log
            assert f"variable yes user {USER_ID}" in log
            # It sees the processes of the agent, and reads nothing of them nor of its folder.
            assert "token in" not in log
            assert "identity refused" in log
            assert "socket False" in log
        assert registry.repositories() == [
            f"slipway/{root.get('/projects/vision').json()['id'].lower()}"
        ]
        succeeded = ["Succeeded", "Succeeded"]
        wait_for(
            lambda: [pod.status.phase for pod in cluster.pods()] == succeeded,
            "end of the pods",
            within_s=120,
        )
        images = {c.name: c.image for c in cluster.pods()[0].spec.containers}
        assert images["task"].startswith(f"{registry.host}/slipway/prj_")
        assert "@sha256:" in images["task"]


def test_a_job_in_an_image_saves_when_it_is_cancelled_and_its_pod_ends(
    slipway: RunningPortal, cluster: KubernetesCluster
) -> None:
    dockerfile = "FROM BASE\nRUN echo built-by-docker > /marker\nENV OF_THE_IMAGE=yes\n"
    saver = (
        "import signal, sys, time\n"
        "def save(*_):\n    print('saved', flush=True); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, save)\nprint('starts', flush=True)\ntime.sleep(600)\n"
    )
    with slipway.client("root") as root:
        job_id = submit(root, saver, dockerfile)
        wait_for(lambda: "starts" in log_of(root, job_id), "first line", within_s=300)
        (pod,) = [pod for pod in cluster.pods() if pod.status.phase == "Running"]
        root.post(f"{JOBS}/{job_id}/cancel", json={}).raise_for_status()
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "stopped", ended
        assert "saved" in log_of(root, job_id)
        name = pod.metadata.name
        wait_for(
            lambda: (
                {p.metadata.name: p.status.phase for p in cluster.pods()}.get(name) != "Running"
            ),
            "end of the pod",
            within_s=60,
        )


def test_a_build_that_fails_ends_the_job_with_its_line(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, PROBE, "FROM BASE\nRUN echo no luck; exit 3\n")
        ended = end_of(root, job_id)
        assert ended["state"] == "failed"
        assert "line 2 of the Dockerfile" in ended["explanation"]
