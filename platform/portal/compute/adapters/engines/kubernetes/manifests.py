"""Manifests of an allocation: an order becomes a ConfigMap, a Secret and a pod for each task.

The ConfigMap stands for the allocation and owns the rest, so deleting it deletes all. It has the
pods as they are to be made, which a quota may delay, and notes how the allocation ended, which
Kubernetes forgets with a pod. Pods are made once: what ends, is evicted or deleted is never
replaced, because a second agent for one task must not start. A Job would replace it, on servers
before 1.28 in any case, and fields that forbid it are dropped silently by servers that lack them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from portal.compute.adapters.engines.agent_command import INDEX, ROOT, TOKENS, agent_argv
from portal.compute.adapters.engines.kubernetes.settings import KubernetesSettings
from portal.compute.engines import AllocationOrder, OrderedImage

Manifest = dict[str, Any]

POOL: Final = "slipway/pool"
ALLOCATION: Final = "slipway/allocation"
TASKS: Final = "slipway/tasks"
# Annotations of the ConfigMap: all pods were made; why not yet; how the allocation ended; the
# person as whom its pods are made.
CREATED: Final = "slipway/created"
PROBLEM: Final = "slipway/problem"
END: Final = "slipway/end"
ACCOUNT: Final = "slipway/account"
PODS: Final = "pods.json"
CONTAINER: Final = "agent"
# Of a pod with an image of a project: the container of its task, and one that waits for the image.
TASK_CONTAINER: Final = "task"
IMAGE_CONTAINER: Final = "image"
_SOCKET_NAME: Final = "task-socket"
_SOCKET_FOLDER: Final = "/run/slipway"
_SOCKET: Final = f"{_SOCKET_FOLDER}/task"
_STARTER: Final = (ROOT / "workers/launcher/task_starter.py").read_text("utf-8")
_AGENT_MEMORY_BYTES: Final = 160 * 2**20
_AGENT_CPU_MILLIS: Final = 50
# The agent reports the end of its task, and sends the log, after the grace of the task.
_REPORT_S: Final = 15
_FOLDER: Final = "node"
_SHARED_MEMORY: Final = "shared-memory"
_TEMPORARY: Final = "task-tmp"
_TEMPORARY_FOLDERS: Final = ("/tmp", "/var/tmp")  # noqa: S108 - the pod's own
# https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_GROUP_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
_NO_RETRY: Final = "kueue.x-k8s.io/retriable-in-group"


def pod_name(allocation: str, index: int) -> str:
    """Return the name of the pod of a task, which is that of its node in Slipway too."""
    return f"{allocation}-{index}"


def grace_s(order: AllocationOrder) -> int:
    """Return the seconds between SIGTERM and SIGKILL of a pod."""
    return int(order.grace.total_seconds()) + _REPORT_S


def config_map(
    order: AllocationOrder, settings: KubernetesSettings, *, pool: str, options: Sequence[str]
) -> Manifest:
    """Return what stands for the allocation. `options` are given to every agent."""
    pods = [_pod(order, settings, index, pool, options) for index in range(order.tasks)]
    annotations = {TASKS: str(order.tasks)} | ({ACCOUNT: order.account} if order.account else {})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": order.name,
            "labels": _labels(order, pool),
            "annotations": annotations,
        },
        "data": {PODS: json.dumps(pods)},
    }


def secret(order: AllocationOrder, *, pool: str, owner_uid: str) -> Manifest:
    """Return the join tokens, each under the number of its task."""
    tokens = {
        # The agent reads the token at its own place of the list.
        str(index): "," * index + token
        for index, token in enumerate(order.join_tokens)
    }
    metadata = {"name": order.name, "labels": _labels(order, pool)}
    return owned(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "Opaque",
            "stringData": tokens,
        },
        name=order.name,
        uid=owner_uid,
    )


def pods_of(anchor: Mapping[str, Any]) -> list[Manifest]:
    """Return the pods that the ConfigMap of an allocation describes, owned by it."""
    metadata = anchor["metadata"]
    pods: list[Manifest] = json.loads(anchor["data"][PODS])
    return [owned(pod, name=metadata["name"], uid=metadata["uid"]) for pod in pods]


def owned(manifest: Manifest, *, name: str, uid: str) -> Manifest:
    """Return an object that is deleted with the ConfigMap of its allocation.

    With a controller as owner `kubectl drain` evicts a pod without `--force`.
    """
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": name,
        "uid": uid,
        "controller": True,
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def _labels(order: AllocationOrder, pool: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "slipway-agent",
        "app.kubernetes.io/managed-by": "slipway",
        POOL: pool,
        ALLOCATION: order.name,
    }


def _pod(
    order: AllocationOrder,
    settings: KubernetesSettings,
    index: int,
    pool: str,
    options: Sequence[str],
) -> Manifest:
    labels = _labels(order, pool)
    annotations = {
        "slipway/label": order.label[:200],
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }
    if settings.queue:
        labels |= {_QUEUE: settings.queue, _GROUP: order.name}
        annotations |= {_GROUP_SIZE: str(order.tasks), _NO_RETRY: "false"}
    metadata = {"name": pod_name(order.name, index), "labels": labels, "annotations": annotations}
    spec = _pod_spec(order, settings)
    agent = _container(order, settings, index, options)
    spec["containers"] = [agent]
    if order.image is not None:
        spec |= _with_image(order, settings, order.image, agent)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _with_image(
    order: AllocationOrder, settings: KubernetesSettings, image: OrderedImage, agent: Manifest
) -> Manifest:
    """Return the fields of a pod whose task runs in a container of its own, in its image.

    The agent stays in the image of the pool, and starts and watches the task through the folder,
    the socket and the processes that both containers share. A first container waits until the node
    has the image, so that no agent joins before.
    """
    private = [settings.folder, _SOCKET_FOLDER]
    starter = [image.python, "-I", "-S", "-c", _STARTER, _SOCKET, *private]
    resources = _split(agent["resources"], settings)
    mount = {"name": _SOCKET_NAME, "mountPath": _SOCKET_FOLDER}
    temporary = [{"name": _TEMPORARY, "mountPath": path} for path in _TEMPORARY_FOLDERS]
    task = {
        "name": TASK_CONTAINER,
        "image": image.reference,
        "imagePullPolicy": "IfNotPresent",
        "command": starter,
        "resources": resources[1],
        "securityContext": agent["securityContext"],
        "volumeMounts": [*agent["volumeMounts"], mount, *temporary],
    }
    first = {
        "name": IMAGE_CONTAINER,
        "image": image.reference,
        "imagePullPolicy": "IfNotPresent",
        "command": [image.python, "-I", "-S", "-c", ""],
        "resources": resources[1],
        "securityContext": agent["securityContext"],
    }
    options = ["--task-container", _SOCKET, "--isolation", "shared", "--warm-limit", "0"]
    agent = {
        **agent,
        "command": [*agent["command"], *options],
        "resources": resources[0],
        "volumeMounts": [*agent["volumeMounts"], mount],
    }
    return {
        "shareProcessNamespace": True,
        "initContainers": [first],
        "containers": [agent, task],
        "volumes": [
            *_volumes(order, settings),
            *({"name": name, "emptyDir": {}} for name in (_SOCKET_NAME, _TEMPORARY)),
        ],
    }


def _split(resources: Manifest, settings: KubernetesSettings) -> tuple[Manifest, Manifest]:
    """Return the part of the agent, and the rest. Both together are what the tier has."""
    memory = int(resources["requests"]["memory"])
    cpu_millis = int(resources["requests"]["cpu"].removesuffix("m"))
    own_memory = min(_AGENT_MEMORY_BYTES, memory // 4)
    own_millis = min(_AGENT_CPU_MILLIS, cpu_millis // 5)
    own = {
        "requests": {"cpu": f"{own_millis}m", "memory": str(own_memory)},
        "limits": {"memory": str(own_memory)},
    }
    left = {"memory": str(memory - own_memory)}
    gpus = {
        name: count for name, count in resources["limits"].items() if name == settings.gpu_resource
    }
    rest = {
        "requests": {"cpu": f"{cpu_millis - own_millis}m", **left, **gpus},
        "limits": {**left, **gpus},
    }
    return own, rest


def _pod_spec(order: AllocationOrder, settings: KubernetesSettings) -> Manifest:
    selector = dict(settings.selected_labels)
    if order.amount.gpus and order.gpu_model and settings.gpu_label:
        selector[settings.gpu_label] = order.gpu_model
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s(order),
        # Pod Security "restricted".
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.user_id,
            "runAsGroup": settings.user_id,
            "fsGroup": settings.user_id,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": _volumes(order, settings),
    }
    if order.time_limit:
        spec["activeDeadlineSeconds"] = max(1, int(order.time_limit.total_seconds()))
    optional = {
        "nodeSelector": selector,
        "tolerations": [_toleration(settings, number) for number in range(len(settings.tolerated))],
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "schedulerName": settings.scheduler,
        "imagePullSecrets": [{"name": name} for name in settings.secrets],
    }
    return spec | {name: value for name, value in optional.items() if value}


def _toleration(settings: KubernetesSettings, number: int) -> Manifest:
    toleration = settings.tolerated[number]
    entry: Manifest = {"key": toleration.key, "operator": "Exists"}
    if toleration.value is not None:
        entry |= {"operator": "Equal", "value": toleration.value}
    if toleration.effect:
        entry["effect"] = toleration.effect
    return entry


def _volumes(order: AllocationOrder, settings: KubernetesSettings) -> list[Manifest]:
    volumes: list[Manifest] = [
        {
            "name": f"claim-{number}",
            "persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.is_read_only},
        }
        for number, volume in enumerate(settings.mounted)
    ]
    # Half of the memory, as on a machine. The usual 64 MiB are too few for loaders of data.
    shared = {"medium": "Memory", "sizeLimit": str(order.amount.memory_bytes // 2)}
    volumes.append({"name": _SHARED_MEMORY, "emptyDir": shared})
    if not any(volume.path == settings.folder for volume in settings.mounted):
        volumes.append({"name": _FOLDER, "emptyDir": {}})
    return volumes


def _container(
    order: AllocationOrder, settings: KubernetesSettings, index: int, options: Sequence[str]
) -> Manifest:
    mounts: list[Manifest] = [
        {
            "name": f"claim-{number}",
            "mountPath": volume.path,
            "readOnly": volume.is_read_only,
        }
        for number, volume in enumerate(settings.mounted)
    ]
    mounts.append({"name": _SHARED_MEMORY, "mountPath": "/dev/shm"})  # noqa: S108
    if not any(volume.path == settings.folder for volume in settings.mounted):
        mounts.append({"name": _FOLDER, "mountPath": settings.folder})
    argv = [*agent_argv(order, folder=settings.folder, python=settings.python), *options]
    if settings.task_python:
        argv += ["--python", settings.task_python]
    amount = order.amount
    requests = {"cpu": f"{amount.cpu_millis}m", "memory": str(amount.memory_bytes)}
    # No limit of CPU: what is idle on the node may be used.
    limits = {"memory": str(amount.memory_bytes)}
    if amount.gpus:
        requests[settings.gpu_resource] = limits[settings.gpu_resource] = str(amount.gpus)
    token = {"secretKeyRef": {"name": order.name, "key": str(index)}}
    return {
        "name": CONTAINER,
        "image": settings.image,
        "command": argv,
        "env": [
            {"name": TOKENS, "valueFrom": token},
            {"name": INDEX, "value": str(index)},
            {"name": "HOME", "value": settings.folder},
        ],
        "resources": {"requests": requests, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
