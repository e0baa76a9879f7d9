"""Servers in a real Kubernetes cluster (`make test-kubernetes`): replicas, through the relay."""

from collections.abc import Iterator

import pytest

from tests.forwarder import forwarded
from tests.integration.serving.living import Endpoints, running_endpoints
from tests.kubernetes_cluster import (
    NAMESPACE,
    KubernetesCluster,
    reason_without,
    running_kubernetes,
)
from tests.ports import free_ports
from tests.processes import wait_for

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(reason_without()), reason=f"no Kubernetes: {reason_without()}"),
]
_STARTS_WITHIN_S = 300.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """A cluster of one node."""
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes") / "cluster") as running:
        yield running


@pytest.fixture(scope="module")
def endpoints(
    tmp_path_factory: pytest.TempPathFactory, cluster: KubernetesCluster
) -> Iterator[Endpoints]:
    """A Slipway with a gateway, a relay and a pool in that cluster."""
    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("slipway")
    address = f"http://{cluster.address}:{port}"
    with running_endpoints(
        folder, SLIPWAY_EMBEDDED_RELAY="true", SLIPWAY_PUBLIC_URL=address
    ) as lab:
        at = lab.running.installation
        pool = {"name": "k8s", "engine": "kubernetes", "settings": cluster.settings()}
        ports = {port: at.portal_port, at.relay_port: at.relay_port}
        with forwarded(cluster.address, ports):
            lab.api.post("/pools", json=pool).raise_for_status()
            (node,) = lab.api.get("/nodes").json()["items"]
            lab.api.post(f"/nodes/{node['name']}/cordon", json={}).raise_for_status()
            yield lab


def test_a_replica_in_a_pod_answers_and_is_replaced_when_its_pod_is_deleted(
    endpoints: Endpoints, cluster: KubernetesCluster
) -> None:
    endpoints.create("doubling", endpoints.register(2, golden=2), pool="k8s")
    endpoints.until("doubling", 2, within_s=_STARTS_WITHIN_S)
    (pod,) = [pod for pod in cluster.pods() if pod.status.phase == "Running"]
    ports = [port for container in pod.spec.containers for port in container.ports or ()]
    assert not ports
    cluster.api.delete_namespaced_pod(pod.metadata.name, NAMESPACE)

    def replaced() -> bool:
        running = [each for each in cluster.pods() if each.status.phase == "Running"]
        return bool(running) and all(each.metadata.uid != pod.metadata.uid for each in running)

    wait_for(replaced, "another pod", within_s=_STARTS_WITHIN_S)
    endpoints.until("doubling", 2, within_s=_STARTS_WITHIN_S)
