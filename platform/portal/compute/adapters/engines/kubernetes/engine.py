"""Allocations of one pool in Kubernetes. Only the control worker imports this module."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from portal.compute.adapters.engines.kubernetes import manifests
from portal.compute.adapters.engines.kubernetes.cluster import Cluster
from portal.compute.adapters.engines.kubernetes.connection import (
    Connection,
    Denied,
    Document,
    NotAllowed,
)
from portal.compute.adapters.engines.kubernetes.pod_times import TIMES, times_of, usage_of
from portal.compute.adapters.engines.kubernetes.reports import (
    End,
    Surroundings,
    by_pod,
    is_created,
    is_deleted,
    is_explained_by_events,
    is_live,
    new_end,
    noted_end,
    report,
    stuck_gang,
)
from portal.compute.adapters.engines.kubernetes.settings import KubernetesSettings
from portal.compute.engines import (
    AllocationOrder,
    AllocationPhase,
    AllocationReport,
    EndCause,
    EngineRefused,
    Owner,
    Usage,
)

# Ended pods stay so long, so that an administrator can read them.
_KEPT_S: Final = 3600.0
# Label of a namespace for one project, whose value is the slug of the project.
PROJECT: Final = "slipway/project"


class KubernetesEngine:
    """One namespace of a cluster, or one for each project, with the settings of a pool.

    The handle of an allocation is its name, after its namespace where projects have their own.
    """

    def __init__(self, pool: str, settings: KubernetesSettings, *, url: str) -> None:
        """Agents reach the portal at `url`."""
        self._pool = pool
        self._settings = settings
        self._options = ("--url", url)
        self._connection = Connection(settings)

    def submit(self, order: AllocationOrder) -> str:
        """Create the objects of an allocation. Raises EngineRefused, EngineAway."""
        handle = order.name
        if self._settings.project_namespace:
            handle = f"{self._settings.namespace_of(order.project)}/{order.name}"
        cluster, _ = self._place_of(handle)
        if self._settings.project_namespace:
            _check_owner(cluster, order.project)
        self._check_quotas(cluster, order)
        try:
            anchor = cluster.create_config_map(
                manifests.config_map(order, self._settings, pool=self._pool, options=self._options)
            )
            if is_created(anchor) or noted_end(anchor):
                return handle
            cluster.create_secret(
                manifests.secret(order, pool=self._pool, owner_uid=anchor["metadata"]["uid"])
            )
            self._create_pods(cluster, anchor)
        except Denied as denial:
            cluster.remove_allocation(order.name)
            raise EngineRefused(str(denial)) from denial
        return handle

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Report on allocations, after making pods that a quota has delayed. Raises EngineAway."""
        by_namespace: dict[str, list[str]] = {}
        for handle in handles:
            by_namespace.setdefault(self._place_of(handle)[0].namespace, []).append(handle)
        reports: dict[str, AllocationReport] = {}
        for namespace, its_own in by_namespace.items():
            try:
                reports |= self._look_into(self._cluster(namespace), its_own)
            except NotAllowed as problem:
                if not self._settings.project_namespace:
                    raise
                # Work of other projects goes on, and what runs in this namespace does.
                unknown = AllocationReport(AllocationPhase.WAITING, str(problem))
                reports |= dict.fromkeys(its_own, unknown)
        return reports

    def stop(self, handle: str, *, account: str = "") -> None:
        """Ask the pods of an allocation to end within their grace."""
        cluster, name = self._place_of(handle)
        try:
            anchor = cluster.config_map(name)
            if anchor is None:
                return
            if noted_end(anchor) is None:
                end = End(EndCause.CANCELLED, "", time.time())
                _note(cluster, anchor, {manifests.END: end.as_text()})
            for pod in cluster.pods_of(name):
                if not is_deleted(pod):
                    cluster.delete_pod(pod["metadata"]["name"])
        except Denied:
            return
        except NotAllowed:
            # Its report says so, and it is tried again.
            if not self._settings.project_namespace:
                raise

    def usage(self, handles: Sequence[str]) -> Mapping[str, Usage]:
        """Return the time of the pods of ended allocations. Raises EngineAway."""
        usages = {}
        for handle in handles:
            cluster, name = self._place_of(handle)
            try:
                anchor = cluster.config_map(name)
            except NotAllowed:
                continue  # in the namespace of one project
            usage = None if anchor is None else usage_of(anchor)
            if usage is not None:
                usages[handle] = usage
        return usages

    def owners_of(self, name: str) -> frozenset[Owner]:
        """Return nobody: Kubernetes does not store who made an object."""
        return frozenset()

    def _cluster(self, namespace: str) -> Cluster:
        return Cluster(self._pool, self._connection, namespace)

    def _place_of(self, handle: str) -> tuple[Cluster, str]:
        """Return the namespace of an allocation, and its name there."""
        namespace, _, name = handle.rpartition("/")
        return self._cluster(namespace or self._settings.namespace), name

    def _look_into(
        self, cluster: Cluster, handles: Sequence[str]
    ) -> Mapping[str, AllocationReport]:
        """Report on the allocations of one namespace."""
        anchors = {anchor["metadata"]["name"]: anchor for anchor in cluster.config_maps()}
        pods: dict[str, list[Document]] = {name: [] for name in anchors}
        for pod in cluster.pods():
            pods.setdefault(pod["metadata"]["labels"][manifests.ALLOCATION], []).append(pod)
        names = {handle.rpartition("/")[2]: handle for handle in handles}
        known = {name: handle for name, handle in names.items() if name in anchors}
        now = time.time()
        around = _surroundings(cluster, [anchors[name] for name in known], pods)
        around = replace(around, now=now)
        reports = {}
        for name, handle in known.items():
            anchor = anchors[name]
            if times := times_of(anchor, pods[name], now=now):
                anchor = _note(cluster, anchor, {TIMES: times})
            if noted_end(anchor) is None:
                anchor = self._tend(cluster, anchor, pods[name], around, now)
            reports[handle] = report(anchor, pods[name], around, now=now)
        for name in anchors.keys() - names.keys():
            _remove_old(cluster, anchors[name], pods[name], now)
        return reports

    # Steps of an allocation

    def _create_pods(self, cluster: Cluster, anchor: Document) -> Document:
        """Create the pods of an allocation, as many as the quota lets. Raises Denied."""
        account = self._account_of(anchor)
        try:
            for pod in manifests.pods_of(anchor):
                cluster.create_pod(pod, account=account)
        except Denied as denial:
            if not denial.is_quota:
                raise
            return _note(cluster, anchor, {manifests.PROBLEM: str(denial)})
        return _note(cluster, anchor, {manifests.CREATED: "true"})

    def _account_of(self, anchor: Document) -> str:
        """Return the person as whom the pods of an allocation are created. Raises Denied.

        People who may change ConfigMaps could name another person, so the table counts, too.
        """
        account: str = anchor["metadata"]["annotations"].get(manifests.ACCOUNT, "")
        if account and account not in self._settings.accounts.values():
            raise Denied(f"{account} is not in the table of people of the pool any more")
        if not account and self._settings.as_person:
            raise Denied("it was ordered before pods were created as the person who submits them")
        return account

    def _tend(
        self,
        cluster: Cluster,
        anchor: Document,
        pods: Sequence[Document],
        around: Surroundings,
        now: float,
    ) -> Document:
        """Create what is missing of an allocation, and end it where one of its pods has ended."""
        if not is_created(anchor):
            try:
                return self._create_pods(cluster, anchor)
            except Denied as denial:
                return _end_all(cluster, anchor, pods, End(EndCause.FAILED, str(denial), now))
        ended = new_end(anchor, pods, around)
        if ended is None:
            patience_s = self._settings.gang_seconds
            reason = stuck_gang(pods, now=now, patience_s=patience_s)
            if not reason:
                return anchor
            ended = EndCause.PREEMPTED, reason, None
        cause, detail, pod = ended
        if cause is EndCause.FAILED and pod is not None:
            line = cluster.last_line(pod["metadata"]["name"])
            detail = f"{line} ({detail})" if line else detail
        return _end_all(cluster, anchor, pods, End(cause, detail, now))

    def _check_quotas(self, cluster: Cluster, order: AllocationOrder) -> None:
        """Raise EngineRefused for an order above a quota, which would wait for ever."""
        amount, tasks = order.amount, order.tasks
        totals = {
            "pods": Decimal(tasks),
            "count/pods": Decimal(tasks),
            "cpu": Decimal(amount.cpu_millis) / 1000 * tasks,
            "memory": Decimal(amount.memory_bytes) * tasks,
            self._settings.gpu_resource: Decimal(amount.gpus) * tasks,
        }
        totals["requests.cpu"] = totals["cpu"]
        totals["requests.memory"] = totals["limits.memory"] = totals["memory"]
        totals[f"requests.{self._settings.gpu_resource}"] = totals[self._settings.gpu_resource]
        for quota in cluster.quotas():
            spec: Mapping[str, Any] = quota.get("spec") or {}
            if spec.get("scopes") or spec.get("scopeSelector"):
                continue  # it may not count these pods
            for resource, limit in (spec.get("hard") or {}).items():
                if resource in totals and totals[resource] > parse_quantity(limit):
                    raise EngineRefused(
                        f"The quota {quota['metadata']['name']} of namespace "
                        f"{cluster.namespace} allows {resource}={limit}, and this needs "
                        f"{totals[resource].normalize():f}."
                    )


def _end_all(cluster: Cluster, anchor: Document, pods: Sequence[Document], end: End) -> Document:
    for pod in pods:
        if not is_deleted(pod) and is_live(pod, now=end.at, since=None):
            cluster.delete_pod(pod["metadata"]["name"])
    return _note(cluster, anchor, {manifests.END: end.as_text()})


def _note(cluster: Cluster, anchor: Document, annotations: Mapping[str, str]) -> Document:
    """Note something in the ConfigMap, and return it with that."""
    before = anchor["metadata"].get("annotations") or {}
    if any(before.get(key) != value for key, value in annotations.items()):
        cluster.annotate(anchor["metadata"]["name"], annotations)
    metadata = {**anchor["metadata"], "annotations": {**before, **annotations}}
    return {**anchor, "metadata": metadata}


def _remove_old(cluster: Cluster, anchor: Document, pods: Sequence[Document], now: float) -> None:
    """Delete an allocation that nobody asks about any more, some time after its end."""
    made_at = datetime.fromisoformat(anchor["metadata"]["creationTimestamp"]).timestamp()
    end = noted_end(anchor)
    is_old = now > max(made_at, end.at if end else 0.0) + _KEPT_S
    if is_old and not any(is_live(pod, now=now, since=None) for pod in pods):
        with suppress(Denied):
            cluster.remove_allocation(anchor["metadata"]["name"])


def _surroundings(
    cluster: Cluster, anchors: Sequence[Document], pods: Mapping[str, Sequence[Document]]
) -> Surroundings:
    """Ask for events and nodes, where they explain something."""
    unclear: list[Document] = []
    is_missing = False
    for anchor in anchors:
        if noted_end(anchor) is None:
            of_it = pods[anchor["metadata"]["name"]]
            unclear += [pod for pod in of_it if is_explained_by_events(pod)]
            tasks = int(anchor["metadata"]["annotations"][manifests.TASKS])
            is_missing = is_missing or (is_created(anchor) and len(of_it) < tasks)
    if not unclear and not is_missing:
        return Surroundings({}, {})
    nodes = {}
    for name in {pod["spec"].get("nodeName", "") for pod in unclear if is_deleted(pod)} - {""}:
        node = cluster.node(name)
        if node is not None:
            nodes[name] = node
    return Surroundings(by_pod(cluster.warnings()), nodes)


def _check_owner(cluster: Cluster, project: str) -> None:
    """Raise EngineRefused unless an administrator gave the namespace to the project."""
    try:
        owner = cluster.labels().get(PROJECT, "")
    except NotAllowed as problem:
        raise EngineRefused(
            f"{problem}. Namespace {cluster.namespace} of project {project} does not exist, or the "
            "account of the pool has no rights there: an administrator of the cluster creates it "
            "with deploy/kubernetes/project.yaml"
        ) from problem
    if owner != project:
        label = f"{PROJECT}={owner}" if owner else f"no label {PROJECT}"
        raise EngineRefused(
            f"namespace {cluster.namespace} has {label}, so it is not that of project {project}"
        )
