"""The contract of engines, kept by a real Kubernetes cluster (`make test-kubernetes`)."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from portal.compute.adapters.engines.kubernetes.engine import KubernetesEngine
from portal.compute.adapters.engines.kubernetes.settings import KubernetesSettings
from portal.compute.engines import (
    AllocationPhase,
    EndCause,
    Engine,
    EngineAway,
    EngineRefused,
    EngineUnusable,
)
from tests.integration.pools.engine_contract import (
    EngineContract,
    look_at,
    order_of,
    wait_for_phase,
)
from tests.kubernetes_cluster import (
    NAMESPACE,
    NODE,
    KubernetesCluster,
    manifests_of,
    reason_without,
    running_kubernetes,
)
from tests.ports import free_ports
from tests.processes import ROOT, wait_for

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(reason_without()), reason=f"no Kubernetes: {reason_without()}"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """A cluster of one node with one CPU, in which a quota allows eight pods."""
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes") / "cluster", cpus=1) as running:
        quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "8"}}}
        running.api.create_namespaced_resource_quota(NAMESPACE, quota)
        yield running


def engine_of(cluster: KubernetesCluster, pool: str = "pool_1", **changes: Any) -> KubernetesEngine:
    """Return the engine of a pool whose agents find no portal."""
    settings = KubernetesSettings.model_validate(cluster.settings(**changes))
    url = f"http://{cluster.address}:{free_ports(1)[0]}"
    return KubernetesEngine(pool, settings, url=url)


class TestKubernetesEngine(EngineContract):
    @pytest.fixture
    def engine(self, cluster: KubernetesCluster) -> Iterator[Engine]:
        """An engine in an empty namespace."""
        yield engine_of(cluster)
        cluster.delete_pods()

    def test_it_waits_with_the_words_of_the_scheduler(self, engine: Engine) -> None:
        handle = engine.submit(order_of(cpu_millis=64_000))
        reason = "0/1 nodes are available: 1 Insufficient cpu."
        wait_for(lambda: look_at(engine, handle).detail == reason, "reason", within_s=60)
        engine.stop(handle)

    def test_a_pod_that_somebody_deletes_is_not_replaced(
        self, engine: Engine, cluster: KubernetesCluster
    ) -> None:
        handle = engine.submit(order_of(2))
        wait_for_phase(engine, handle, AllocationPhase.GRANTED)
        cluster.api.delete_namespaced_pod(f"{handle}-0", NAMESPACE)
        ended = wait_for_phase(engine, handle, AllocationPhase.ENDED)
        assert ended.cause is EndCause.CANCELLED
        assert "deleted" in ended.detail
        # The other pod of the gang was asked to end as well.
        wait_for(lambda: not cluster.pods(), "end of both pods", within_s=60)
        assert look_at(engine, handle) == ended

    def test_a_repeated_order_makes_no_second_pod(
        self, engine: Engine, cluster: KubernetesCluster
    ) -> None:
        order = order_of()
        handle = engine.submit(order)
        wait_for_phase(engine, handle, AllocationPhase.GRANTED)
        cluster.api.delete_namespaced_pod(f"{handle}-0", NAMESPACE, grace_period_seconds=1)
        wait_for(lambda: not cluster.pods(), "end of the pod", within_s=60)
        assert engine.submit(order) == handle
        assert not cluster.pods()
        assert look_at(engine, handle).cause is EndCause.CANCELLED

    def test_a_time_limit_ends_it(self, engine: Engine) -> None:
        handle = engine.submit(replace(order_of(), time_limit=timedelta(seconds=3)))
        ended = wait_for_phase(engine, handle, AllocationPhase.ENDED)
        assert ended.cause is EndCause.TIME_LIMIT, ended

    def test_a_node_that_is_drained_preempts(
        self, engine: Engine, cluster: KubernetesCluster
    ) -> None:
        handle = engine.submit(order_of())
        wait_for_phase(engine, handle, AllocationPhase.GRANTED)
        cluster.cordon(True)
        cluster.evict(f"{handle}-0")
        ended = wait_for_phase(engine, handle, AllocationPhase.ENDED)
        cluster.cordon(False)
        assert ended.cause is EndCause.PREEMPTED
        assert "node n1 is cordoned" in ended.detail

    def test_a_pod_of_higher_priority_preempts(
        self, engine: Engine, cluster: KubernetesCluster
    ) -> None:
        cluster.create_priority("urgent", 1000)
        handle = engine.submit(order_of(2))
        wait_for_phase(engine, handle, AllocationPhase.GRANTED)
        urgent = engine_of(cluster, "pool_2", priority_class="urgent")
        other = urgent.submit(order_of(2))
        ended = wait_for_phase(engine, handle, AllocationPhase.ENDED)
        assert ended.cause is EndCause.PREEMPTED, ended
        assert "Preempted by" in ended.detail
        wait_for_phase(urgent, other, AllocationPhase.GRANTED)
        urgent.stop(other)

    def test_half_a_gang_gives_its_places_back(
        self, engine: Engine, cluster: KubernetesCluster
    ) -> None:
        single = engine.submit(order_of())
        wait_for_phase(engine, single, AllocationPhase.GRANTED)
        other = engine_of(cluster, "pool_2", gang_seconds=5)
        gang = other.submit(order_of(2))
        wait_for(lambda: "1 of 2 pods run" in look_at(other, gang).detail, "half", within_s=60)
        ended = wait_for_phase(other, gang, AllocationPhase.ENDED)
        assert ended.cause is EndCause.PREEMPTED
        assert "only 1 of 2 pods found a place within 5 s" in ended.detail
        assert "Insufficient cpu" in ended.detail
        assert look_at(engine, single).phase is AllocationPhase.GRANTED
        engine.stop(single)

    def test_an_image_that_cannot_be_pulled_is_the_reason(
        self, engine: Engine, cluster: KubernetesCluster
    ) -> None:
        other = engine_of(cluster, image="127.0.0.1:9/none:1")
        handle = other.submit(order_of())
        words = 'ErrImagePull: Failed to pull image "127.0.0.1:9/none:1"'
        wait_for(lambda: words in look_at(other, handle).detail, "reason", within_s=60)
        wait_for(
            lambda: "ImagePullBackOff: Failed to pull" in look_at(other, handle).detail,
            "same reason later",
            within_s=120,
        )
        assert "connection refused" in look_at(other, handle).detail
        other.stop(handle)

    def test_pods_go_to_the_nodes_of_the_settings(
        self, engine: Engine, cluster: KubernetesCluster
    ) -> None:
        taint = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
        cluster.api.patch_node(NODE, {"spec": {"taints": [taint]}})
        placed = engine_of(
            cluster,
            node_selector=f"kubernetes.io/hostname={NODE}",
            tolerations="gpu=true:NoSchedule",
            pull_secrets="registry",
        )
        wait_for_phase(placed, placed.submit(order_of()), AllocationPhase.GRANTED)
        handle = engine.submit(order_of())
        words = "1 node(s) had taint {gpu: true}"
        wait_for(lambda: words in look_at(engine, handle).detail, "reason", within_s=60)
        cluster.api.patch_node(NODE, {"spec": {"taints": None}})
        wait_for_phase(engine, handle, AllocationPhase.GRANTED)
        unknown = engine_of(cluster, priority_class="no-such-class")
        with pytest.raises(EngineRefused, match="no PriorityClass with name no-such-class"):
            unknown.submit(order_of())

    def test_a_quota_delays_and_its_words_are_the_reason(
        self, engine: Engine, cluster: KubernetesCluster
    ) -> None:
        first = engine.submit(order_of(7, cpu_millis=10))
        second = engine.submit(order_of(2, cpu_millis=10))
        assert "exceeded quota: team" in look_at(engine, second).detail
        assert look_at(engine, second).phase is AllocationPhase.WAITING
        engine.stop(first)
        wait_for_phase(engine, first, AllocationPhase.ENDED)
        wait_for_phase(engine, second, AllocationPhase.GRANTED)
        engine.stop(second)

    def test_what_admission_denies_is_refused_and_leaves_nothing(
        self, engine: Engine, cluster: KubernetesCluster
    ) -> None:
        nobody = engine_of(cluster, service_account="nobody")
        order = order_of()
        with pytest.raises(EngineRefused, match="service account vision/nobody"):
            nobody.submit(order)
        names = [
            item.metadata.name for item in cluster.api.list_namespaced_config_map(NAMESPACE).items
        ]
        assert order.name not in names


def test_an_account_without_rights_is_named(cluster: KubernetesCluster) -> None:
    admin = str(cluster.folder / "admin.kubeconfig")
    account = f"system:serviceaccount:{NAMESPACE}"
    nobody = engine_of(cluster, kubeconfig=admin, impersonate=f"{account}:nobody")
    with pytest.raises(EngineUnusable, match=r"nobody.* cannot create resource"):
        nobody.submit(order_of())
    slipway = engine_of(cluster, kubeconfig=admin, impersonate=f"{account}:slipway")
    handle = slipway.submit(order_of())
    assert slipway.submit(order_of()) != handle
    cluster.delete_pods()


def test_slipway_cannot_read_secrets_or_touch_other_namespaces(cluster: KubernetesCluster) -> None:
    engine = engine_of(cluster)
    order = replace(order_of(), join_tokens=("slj_secret",))
    engine.submit(order)
    core = cluster.api_of_slipway()
    for refused in (
        lambda: core.read_namespaced_secret(order.name, NAMESPACE),
        lambda: core.list_namespaced_secret(NAMESPACE),
        lambda: core.list_namespaced_pod("kube-system"),
        lambda: core.list_namespaced_config_map("kube-system"),
        lambda: core.create_namespaced_pod("default", {"metadata": {"name": "x"}}),
        core.list_node,
    ):
        with pytest.raises(Exception, match="Forbidden"):
            refused()
    stored = cluster.api.list_namespaced_config_map(NAMESPACE).to_str()
    assert "slj_secret" not in stored
    cluster.delete_pods()


def test_each_project_has_a_namespace_that_others_do_not_reach(
    cluster: KubernetesCluster,
) -> None:
    audio, other = (cluster.create_project(project) for project in ("audio", "video"))
    engine = engine_of(cluster, project_namespace="slipway-{project}", service_account="jobs")
    order, theirs = (replace(order_of(), project=project) for project in ("audio", "video"))
    handle = engine.submit(order)
    assert handle == f"{audio}/{order.name}"
    assert engine.submit(order) == handle
    second = engine.submit(theirs)
    assert engine.look([handle, second]).keys() == {handle, second}
    wait_for_phase(engine, handle, AllocationPhase.GRANTED)
    (pod,) = cluster.pods(audio)
    assert pod.spec.service_account_name == "jobs"
    assert not [volume for volume in pod.spec.volumes if volume.secret or volume.projected]
    account = cluster.api_of(f"system:serviceaccount:{audio}:jobs")
    for namespace in (audio, other, NAMESPACE):
        for refused in (
            account.list_namespaced_pod,
            account.list_namespaced_secret,
            lambda namespace: account.read_namespaced_config_map(theirs.name, namespace),
            lambda namespace: account.read_namespaced_secret(theirs.name, namespace),
            lambda namespace: account.create_namespaced_pod(namespace, {"metadata": {}}),
        ):
            with pytest.raises(Exception, match="Forbidden"):
                refused(namespace)
    engine.stop(handle)
    assert wait_for_phase(engine, handle, AllocationPhase.ENDED).cause is EndCause.CANCELLED
    engine.stop(second)
    wait_for_phase(engine, second, AllocationPhase.ENDED)


def test_a_namespace_that_is_not_the_projects_is_refused(cluster: KubernetesCluster) -> None:
    engine = engine_of(cluster, project_namespace="slipway-{project}")
    with pytest.raises(EngineRefused, match=r"slipway-none of project none does not exist, or"):
        engine.submit(replace(order_of(), project="none"))
    owned = cluster.create_project("owned")
    cluster.api.patch_namespace(owned, {"metadata": {"labels": {"slipway/project": "another"}}})
    with pytest.raises(EngineRefused, match="has slipway/project=another, so it is not that of"):
        engine.submit(replace(order_of(), project="owned"))
    cluster.api.patch_namespace(owned, {"metadata": {"labels": {"slipway/project": "owned"}}})
    handle = engine.submit(replace(order_of(cpu_millis=64_000), project="owned"))
    # A namespace that Slipway may not enter any more delays its own project alone.
    rbac = client.RbacAuthorizationV1Api(cluster.admin)
    rbac.delete_namespaced_role_binding("slipway", owned)
    wait_for(lambda: "cannot list" in look_at(engine, handle).detail, "reason", within_s=30)
    assert look_at(engine, handle).phase is AllocationPhase.WAITING
    engine.stop(handle)


def test_pods_are_created_as_the_person(cluster: KubernetesCluster) -> None:
    for document in manifests_of(ROOT / "deploy" / "kubernetes" / "people.yaml"):
        cluster.apply(document)
    people = "alice@example.org=alice, bob@example.org=bob"
    engine = engine_of(cluster, as_person=True, people=people)
    handle = engine.submit(replace(order_of(), account="alice"))
    wait_for_phase(engine, handle, AllocationPhase.GRANTED)
    engine.stop(handle)
    wait_for_phase(engine, handle, AllocationPhase.ENDED)
    with pytest.raises(EngineRefused, match='cannot impersonate resource "users"'):
        engine.submit(replace(order_of(), account="bob"))
    with pytest.raises(EngineRefused, match="mallory is not in the table of people"):
        engine.submit(replace(order_of(), account="mallory"))
    rbac = client.RbacAuthorizationV1Api(cluster.admin)
    rbac.delete_namespaced_role_binding("slipway-person", NAMESPACE)
    with pytest.raises(EngineRefused, match='User "alice" cannot create resource "pods"'):
        engine.submit(replace(order_of(), account="alice"))
    cluster.delete_pods()


def test_a_namespace_that_does_not_exist_is_named(cluster: KubernetesCluster) -> None:
    admin = str(cluster.folder / "admin.kubeconfig")
    engine = engine_of(cluster, kubeconfig=admin, namespace="nowhere")
    with pytest.raises(EngineUnusable, match='namespaces "nowhere" not found'):
        engine.submit(order_of())


def test_a_server_that_is_away_is_no_end(cluster: KubernetesCluster) -> None:
    engine = engine_of(cluster)
    handle = engine.submit(order_of())
    wait_for_phase(engine, handle, AllocationPhase.GRANTED)
    cluster.programs["kube-apiserver"].end()
    with pytest.raises(EngineAway, match=r"127\.0\.0\.1:\d+: .*Connection refused"):
        engine.look([handle])
    cluster.start("kube-apiserver")
    wait_for(cluster.has_api, "API server", within_s=60)
    wait_for_phase(engine, handle, AllocationPhase.GRANTED)
    engine.stop(handle)
    wait_for_phase(engine, handle, AllocationPhase.ENDED)


def test_a_kubeconfig_that_is_missing_is_named(tmp_path: Path) -> None:
    settings = KubernetesSettings(image="x", kubeconfig=str(tmp_path / "none"))
    engine = KubernetesEngine("pool_1", settings, url="http://127.0.0.1:9")
    with pytest.raises(EngineUnusable, match="none cannot be used"):
        engine.look(["sw-1"])
