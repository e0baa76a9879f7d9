"""Pools in Kubernetes: their settings, and the manifests of an order. No cluster runs here."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from portal.compute.adapters.engines.kubernetes import manifests
from portal.compute.adapters.engines.kubernetes.pod_times import TIMES, times_of, usage_of
from portal.compute.adapters.engines.kubernetes.reports import (
    Surroundings,
    by_pod,
    new_end,
    report,
    waiting_reason,
)
from portal.compute.adapters.engines.kubernetes.settings import KubernetesSettings
from portal.compute.engines import (
    AllocationOrder,
    AllocationPhase,
    EndCause,
    OrderedImage,
    Usage,
)
from portal.compute.models import Pool
from portal.compute.resources import Amount
from portal.compute.services.pool_accounts import account_name
from portal.core.errors import InvalidInput
from tests.personas import Api, Personas, json_of
from tests.portal.compute.kubernetes_schema import faults_of
from tests.processes import ROOT, clean_environment
from tests.security.problems import refusal

ORDER = AllocationOrder(
    name="sw-0123456789abcdef",
    label="slipway vision train; rm -rf ~ 'é",
    tasks=2,
    amount=Amount(1500, 2 * 2**30, 1),
    gpu_model="H100",
    time_limit=timedelta(hours=2),
    grace=timedelta(seconds=30),
    join_tokens=("slj_first", "slj_second"),
)
EVERYTHING = KubernetesSettings(
    image="registry.test/slipway/node@sha256:00",
    namespace="ml-vision",
    service_account="jobs",
    volumes="nodes:/var/lib/slipway, datasets:/data:ro",
    node_selector="disk=ssd, example.com/zone=a",
    tolerations="gpu=true:NoSchedule, spot, team=vision",
    priority_class="batch",
    scheduler="volcano",
    queue="vision",
    gpu_label="nvidia.com/gpu.product",
    pull_secrets="registry, other",
    task_python="/opt/jobs/bin/python",
)
PLAIN = KubernetesSettings(image="slipway/node")


def _anchor(settings: KubernetesSettings, order: AllocationOrder = ORDER) -> dict[str, Any]:
    document = manifests.config_map(order, settings, pool="pool_1", options=("--url", "http://p"))
    document["metadata"]["uid"] = "0f3c"
    return document


def _pods(settings: KubernetesSettings) -> list[dict[str, Any]]:
    return manifests.pods_of(_anchor(settings))


@pytest.mark.parametrize("settings", [EVERYTHING, PLAIN])
def test_manifests_keep_the_schema_of_the_client(settings: KubernetesSettings) -> None:
    secret = manifests.secret(ORDER, pool="pool_1", owner_uid="0f3c")
    faults = [
        *faults_of(_anchor(settings), "V1ConfigMap", "ConfigMap"),
        *faults_of(secret, "V1Secret", "Secret"),
        *(fault for pod in _pods(settings) for fault in faults_of(pod, "V1Pod", "Pod")),
    ]
    assert not faults


@pytest.mark.parametrize(
    ("place", "value", "fault"),
    [
        ("restartPolicies", "Never", "Pod.spec.restartPolicies is unknown"),
        ("terminationGracePeriodSeconds", "30", "must be int"),
        ("containers", [{"image": "x"}], "must not be `None`"),
        ("nodeSelector", ["a"], "is no mapping"),
    ],
)
def test_the_check_of_manifests_finds_faults(place: str, value: Any, fault: str) -> None:
    pod = _pods(PLAIN)[0]
    pod["spec"][place] = value
    assert any(fault in text for text in faults_of(pod, "V1Pod", "Pod"))


def test_a_pod_fits_into_pod_security_restricted() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted."""
    for pod in _pods(EVERYTHING):
        spec = pod["spec"]
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"}
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        context = container["securityContext"]
        assert context == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        sources = {key for volume in spec["volumes"] for key in volume} - {"name"}
        assert sources <= {"emptyDir", "persistentVolumeClaim"}


def test_a_pod_has_its_own_token_and_none_of_the_cluster() -> None:
    secret = manifests.secret(ORDER, pool="pool_1", owner_uid="0f3c")
    # The agent reads the token at the number of its task.
    assert secret["stringData"] == {"0": "slj_first", "1": ",slj_second"}
    for index, pod in enumerate(_pods(EVERYTHING)):
        assert pod["spec"]["automountServiceAccountToken"] is False
        (tokens,) = (
            entry
            for entry in pod["spec"]["containers"][0]["env"]
            if entry["name"] == "SLIPWAY_JOIN_TOKENS"
        )
        reference = {"secretKeyRef": {"name": ORDER.name, "key": str(index)}}
        assert tokens == {"name": "SLIPWAY_JOIN_TOKENS", "valueFrom": reference}
    assert "slj_" not in json.dumps([_anchor(EVERYTHING), _pods(EVERYTHING)])


def test_settings_arrive_in_the_pods() -> None:
    pods = _pods(EVERYTHING)
    assert [pod["metadata"]["name"] for pod in pods] == [f"{ORDER.name}-0", f"{ORDER.name}-1"]
    spec, metadata = pods[0]["spec"], pods[0]["metadata"]
    assert spec["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] == 7200
    assert spec["terminationGracePeriodSeconds"] == 45
    assert spec["nodeSelector"] == {
        "disk": "ssd",
        "example.com/zone": "a",
        "nvidia.com/gpu.product": "H100",
    }
    assert spec["tolerations"] == [
        {"key": "gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "vision"},
    ]
    assert (spec["schedulerName"], spec["priorityClassName"]) == ("volcano", "batch")
    assert spec["imagePullSecrets"] == [{"name": "registry"}, {"name": "other"}]
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "vision"
    assert metadata["labels"]["kueue.x-k8s.io/pod-group-name"] == ORDER.name
    assert metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "2"
    container = spec["containers"][0]
    assert container["resources"] == {
        "requests": {"cpu": "1500m", "memory": "2147483648", "nvidia.com/gpu": "1"},
        "limits": {"memory": "2147483648", "nvidia.com/gpu": "1"},
    }
    mounts = {mount["mountPath"]: mount.get("readOnly") for mount in container["volumeMounts"]}
    assert mounts == {"/var/lib/slipway": False, "/data": True, "/dev/shm": None}  # noqa: S108
    assert container["command"][-2:] == ["--python", "/opt/jobs/bin/python"]


def test_without_a_time_limit_a_pod_has_none() -> None:
    order = replace(ORDER, time_limit=None, amount=Amount(500, 2**28))
    (pod, _) = manifests.pods_of(_anchor(PLAIN, order))
    assert "activeDeadlineSeconds" not in pod["spec"]
    assert "nodeSelector" not in pod["spec"]
    assert "kueue" not in json.dumps(pod)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "The setting image is not valid: it must name an image with Python and Slipway."),
        ({"image": "a b"}, "image is not valid: it must be the name of an image."),
        ({"images": "a"}, "A Kubernetes pool has no setting images."),
        ({"namespace": "Team"}, "namespace is not valid: it must be the name of a namespace."),
        ({"kubeconfig": "kube/config"}, "kubeconfig is not valid: it must be an absolute path."),
        ({"user_id": 0}, "The setting user_id is not valid"),
        ({"volumes": "data"}, "volumes is not valid: 'data' is not CLAIM:/path or CLAIM:/path:ro."),
        ({"node_selector": "ssd"}, "node_selector is not valid: 'ssd' is not KEY=VALUE."),
        ({"tolerations": "gpu=true:Never"}, "'gpu=true:Never' is not KEY, KEY=VALUE or"),
        ({"pull_secrets": "a,B!"}, "pull_secrets is not valid: 'B!' is not the name of a Secret."),
        ({"gpu_resource": "nvidia gpu"}, "it must be a key such as nvidia.com/gpu."),
        ({"python": "python -c id"}, "python is not valid: it must be an interpreter in the image"),
        ({"portal_url": "portal:8000"}, "it must be an address that begins with https:// or"),
        ({"impersonate": "a b"}, "impersonate is not valid: it must be one word without spaces."),
        ({"project_namespace": "team"}, "it must be such as slipway-{project}."),
        ({"project_namespace": "{project}{project}"}, "it must be such as slipway-{project}."),
        ({"project_namespace": "Team-{project}"}, "it must be such as slipway-{project}."),
        ({"project_namespace": "-{project}"}, "it must be such as slipway-{project}."),
        ({"project_namespace": "sixteen-letters-{project}"}, "at most 15 characters beside"),
        (
            {"project_namespace": "a-{project}", "namespace": "b"},
            "do not fit together: namespace and project_namespace exclude each other.",
        ),
        ({"as_person": True}, "as_person needs people, such as people=alice@example.org=alice."),
        ({"people": "a@b.org=a"}, "do not fit together: people needs as_person=true."),
        (
            {"as_person": True, "people": "a@b.org=a", "impersonate": "x"},
            "as_person and impersonate exclude each other.",
        ),
        ({"as_person": True, "people": "alice"}, "people is not valid: 'alice' is not EMAIL=USER."),
        (
            {"as_person": True, "people": "a@b.org=a, A@B.org=b"},
            "people is not valid: a@b.org has two accounts.",
        ),
        (
            {"as_person": True, "people": "a@b.org=system:admin"},
            "system:admin is an account of the cluster, and of no person.",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_the_reason(
    people: Personas, settings: dict[str, Any], words: str
) -> None:
    given = settings if not settings or "image" in settings else {"image": "i", **settings}
    body = {"name": "k8s", "engine": "kubernetes", "settings": given}
    problem = refusal(Api.of(people.root).post("pools", body))
    assert (problem.field or "").startswith("settings")
    assert words in problem.detail


def test_an_administrator_adds_a_pool_in_kubernetes(people: Personas) -> None:
    root = Api.of(people.root)
    settings = {"image": "slipway/node:1", "namespace": "vision", "tolerations": "spot"}
    answer = root.post("pools", {"name": "k8s", "engine": "kubernetes", "settings": settings})
    assert answer.status_code == 201, answer.content
    assert json_of(answer)["engine_label"] == "Kubernetes"
    assert json_of(root.get("pools/k8s"))["settings"] == settings


def test_every_project_has_a_namespace_of_its_own() -> None:
    settings = KubernetesSettings(image="i", project_namespace="slipway-{project}")
    slugs = ["vision", "vision-2", "a" * 48]
    assert [settings.namespace_of(slug) for slug in slugs] == [f"slipway-{slug}" for slug in slugs]
    assert PLAIN.namespace_of("vision") == "default"


def test_an_administrator_gives_the_accounts_of_people(people: Personas) -> None:
    root, bob = Api.of(people.root), Api.of(people.bob)
    settings = {
        "image": "i",
        "as_person": True,
        "people": f"{people.bob.email}=bob7, x@example.org=oidc:x@example.org",
    }
    body = {"name": "k8s", "engine": "kubernetes", "settings": settings}
    assert root.post("pools", body).status_code == 201
    pool = Pool.objects.get()
    assert account_name(pool=pool, user=people.bob) == "bob7"
    assert json_of(bob.get("pools/k8s/account"))["name"] == "bob7"
    assert json_of(bob.get("pools/k8s"))["settings"] == {}, "the table is the administrators'"
    refused = refusal(bob.post("pools/k8s/account", {}))
    assert (refused.status, refused.code) == (422, "accounts_are_given")
    with pytest.raises(InvalidInput, match="you have no account there"):
        account_name(pool=pool, user=people.vera)
    assert json_of(Api.of(people.vera).get("pools/k8s/account"))["name"] is None


def test_the_portal_starts_without_the_client_of_kubernetes() -> None:
    script = (
        "import django; django.setup(); import sys, portal.config.urls;"
        "print('kubernetes' in sys.modules)"
    )
    environ = clean_environment() | {
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


# Answers of the API that newer servers give than the one of the integration tests (1.20).


def _status(pod: dict[str, Any], phase: str, **fields: Any) -> dict[str, Any]:
    return {**pod, "status": {"phase": phase, **fields}}


def _created_anchor() -> dict[str, Any]:
    anchor = _anchor(PLAIN)
    anchor["metadata"]["annotations"][manifests.CREATED] = "true"
    return anchor


NOTHING = Surroundings({}, {})


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("PreemptionByScheduler", EndCause.PREEMPTED),
        ("EvictionByEvictionAPI", EndCause.PREEMPTED),
        ("DeletionByTaintManager", EndCause.NODE_FAILED),
    ],
)
def test_a_disruption_names_its_cause(reason: str, cause: EndCause) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why"}
    pods = [_status(pod, "Running", conditions=[condition]) for pod in _pods(PLAIN)]
    ended = new_end(_created_anchor(), pods, NOTHING)
    assert ended is not None
    assert ended[:2] == (cause, f"{reason}: why")


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("DeadlineExceeded", EndCause.TIME_LIMIT),
        ("Evicted", EndCause.PREEMPTED),
        ("NodeShutdown", EndCause.NODE_FAILED),
        ("SomethingNew", EndCause.FAILED),
    ],
)
def test_a_pod_that_its_node_ends_names_the_cause(reason: str, cause: EndCause) -> None:
    first, second = _pods(PLAIN)
    pods = [_status(first, "Running"), _status(second, "Failed", reason=reason, message="why")]
    ended = new_end(_created_anchor(), pods, NOTHING)
    assert ended is not None
    assert ended[:2] == (cause, f"{reason}: why")


def test_a_gate_of_a_queue_is_the_reason() -> None:
    text = "Scheduling is blocked due to non-empty scheduling gates"
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": text,
    }
    pods = [_status(pod, "Pending", conditions=[condition]) for pod in _pods(PLAIN)]
    state = report(_created_anchor(), pods, NOTHING, now=0.0)
    assert (state.phase, state.detail) == (AllocationPhase.WAITING, text)


def test_the_last_warning_explains_a_pod_that_does_not_start() -> None:
    pod = _status(_pods(PLAIN)[0], "Pending", conditions=[])
    name = pod["metadata"]["name"]
    events = [
        {
            "involvedObject": {"name": name},
            "reason": "FailedMount",
            "message": text,
            "lastTimestamp": at,
        }
        for text, at in (("later", "2026-01-01T10:00:01Z"), ("first", "2026-01-01T10:00:00Z"))
    ]
    assert waiting_reason(pod, Surroundings(by_pod(events), {})) == "FailedMount: later"


def _times_pod(name: str, started: str, finished: str | None) -> dict[str, Any]:
    state = {"terminated": {"finishedAt": finished}} if finished else {"running": {}}
    status = {"startTime": started, "containerStatuses": [{"state": state}]}
    return {"metadata": {"name": name}, "status": status}


def test_the_times_of_pods_are_the_usage_of_an_allocation() -> None:
    anchor = _anchor(PLAIN)
    first, second = f"{ORDER.name}-0", f"{ORDER.name}-1"
    running = [_times_pod(name, "2026-11-30T10:00:00+00:00", None) for name in (first, second)]
    noted = times_of(anchor, running, now=0.0)
    anchor["metadata"]["annotations"][TIMES] = noted
    assert usage_of(anchor) is None
    # One has ended, and the other was deleted and is gone.
    start = datetime(2026, 11, 30, 10, tzinfo=UTC).timestamp()
    ended = [_times_pod(first, "2026-11-30T10:00:00+00:00", "2026-11-30T10:01:40+00:00")]
    anchor["metadata"]["annotations"][TIMES] = times_of(anchor, ended, now=start + 120)
    assert times_of(anchor, [], now=start + 999) == anchor["metadata"]["annotations"][TIMES]
    resources = "pods=2,cpu=3000m,memory=4096Mi,nvidia.com/gpu=2"
    assert usage_of(anchor) == Usage(110, 2, 330, resources)


def test_an_allocation_without_a_started_pod_has_used_nothing() -> None:
    pending = {"metadata": {"name": f"{ORDER.name}-0"}, "status": {"phase": "Pending"}}
    assert times_of(_anchor(PLAIN), [pending], now=0.0) == ""
    assert usage_of(_anchor(PLAIN)) == Usage(0, 0, 0)


IMAGE = OrderedImage(f"registry.test/slipway/prj_1@sha256:{'ab' * 32}", "/usr/bin/python3")


@pytest.mark.parametrize("settings", [EVERYTHING, PLAIN])
def test_a_pod_with_an_image_of_a_project_keeps_the_schema_and_its_limits(
    settings: KubernetesSettings,
) -> None:
    anchor = _anchor(settings, replace(ORDER, image=IMAGE))
    for pod in manifests.pods_of(anchor):
        assert not list(faults_of(pod, "V1Pod", "Pod"))
        spec = pod["spec"]
        (first,) = spec["initContainers"]
        agent, task = spec["containers"]
        assert [first["image"], task["image"]] == [IMAGE.reference] * 2
        assert agent["image"] == settings.image
        assert agent["command"][-6:-4] == ["--task-container", "/run/slipway/task"]
        # The token is in the agent's container alone.
        assert "env" not in task
        assert "env" not in first
        for container in (first, agent, task):
            context = container["securityContext"]
            assert context == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        memory = sum(int(each["resources"]["requests"]["memory"]) for each in (agent, task))
        assert memory == ORDER.amount.memory_bytes
        cpus = [each["resources"]["requests"]["cpu"] for each in (agent, task)]
        assert cpus == ["50m", "1450m"]
        assert "nvidia.com/gpu" not in agent["resources"]["limits"]
        assert task["resources"]["limits"]["nvidia.com/gpu"] == "1"
        shared = {mount["mountPath"] for mount in task["volumeMounts"]}
        assert {settings.folder, "/run/slipway", "/dev/shm"} <= shared  # noqa: S108


def test_a_pod_waits_with_the_words_about_the_image_of_its_project() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    pod = _status(_pods(PLAIN)[0], "Pending", initContainerStatuses=[{"state": waiting}])
    reason = waiting_reason(pod, Surroundings({}, {}))
    assert reason == "ImagePullBackOff: Back-off pulling image"
