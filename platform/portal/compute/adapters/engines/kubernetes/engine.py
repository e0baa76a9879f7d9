"""Allocations of one pool in Kubernetes. Only the control worker imports this module."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from portal.compute.adapters.engines.kubernetes import manifests
from portal.compute.adapters.engines.kubernetes.cluster import Cluster, Denied
from portal.compute.adapters.engines.kubernetes.reports import (
    Document,
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
    AllocationReport,
    EndCause,
    EngineRefused,
    Owner,
)

# Ended pods stay so long, so that an administrator can read them.
_KEPT_S: Final = 3600.0


class KubernetesEngine:
    """One namespace of a cluster, with the settings of a pool."""

    def __init__(self, pool: str, settings: KubernetesSettings, *, url: str) -> None:
        """Agents reach the portal at `url`."""
        self._pool = pool
        self._settings = settings
        self._options = ("--url", url)
        self._cluster = Cluster(pool, settings)

    def submit(self, order: AllocationOrder) -> str:
        """Create the objects of an allocation. Raises EngineRefused, EngineAway."""
        self._check_quotas(order)
        try:
            anchor = self._cluster.create_config_map(
                manifests.config_map(order, self._settings, pool=self._pool, options=self._options)
            )
            if is_created(anchor) or noted_end(anchor):
                return order.name
            self._cluster.create_secret(
                manifests.secret(order, pool=self._pool, owner_uid=anchor["metadata"]["uid"])
            )
            self._create_pods(anchor)
        except Denied as denial:
            self._cluster.remove_allocation(order.name)
            raise EngineRefused(str(denial)) from denial
        return order.name

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Report on allocations, after making pods that a quota has delayed. Raises EngineAway."""
        anchors = {anchor["metadata"]["name"]: anchor for anchor in self._cluster.config_maps()}
        pods: dict[str, list[Document]] = {name: [] for name in anchors}
        for pod in self._cluster.pods():
            pods.setdefault(pod["metadata"]["labels"][manifests.ALLOCATION], []).append(pod)
        known = [handle for handle in handles if handle in anchors]
        around = self._surroundings([anchors[name] for name in known], pods)
        now = time.time()
        reports = {}
        for name in known:
            anchor = anchors[name]
            if noted_end(anchor) is None:
                anchor = self._tend(anchor, pods[name], around, now)
            reports[name] = report(anchor, pods[name], around, now=now)
        for name in anchors.keys() - set(handles):
            self._remove_old(anchors[name], pods[name], now)
        return reports

    def stop(self, handle: str, *, account: str = "") -> None:
        """Ask the pods of an allocation to end within their grace."""
        with suppress(Denied):
            anchor = self._cluster.config_map(handle)
            if anchor is None:
                return
            if noted_end(anchor) is None:
                end = End(EndCause.CANCELLED, "", time.time())
                self._note(anchor, {manifests.END: end.as_text()})
            for pod in self._cluster.pods_of(handle):
                if not is_deleted(pod):
                    self._cluster.delete_pod(pod["metadata"]["name"])

    def owners_of(self, name: str) -> frozenset[Owner]:
        """Return nobody: Kubernetes does not store who made an object."""
        return frozenset()

    # Steps of an allocation

    def _create_pods(self, anchor: Document) -> Document:
        """Create the pods of an allocation, as many as the quota lets. Raises Denied."""
        try:
            for pod in manifests.pods_of(anchor):
                self._cluster.create_pod(pod)
        except Denied as denial:
            if not denial.is_quota:
                raise
            return self._note(anchor, {manifests.PROBLEM: str(denial)})
        return self._note(anchor, {manifests.CREATED: "true"})

    def _tend(
        self, anchor: Document, pods: Sequence[Document], around: Surroundings, now: float
    ) -> Document:
        """Create what is missing of an allocation, and end it where one of its pods has ended."""
        if not is_created(anchor):
            try:
                return self._create_pods(anchor)
            except Denied as denial:
                return self._end_all(anchor, pods, End(EndCause.FAILED, str(denial), now))
        ended = new_end(anchor, pods, around)
        if ended is None:
            patience_s = self._settings.gang_seconds
            reason = stuck_gang(pods, now=now, patience_s=patience_s)
            if not reason:
                return anchor
            ended = EndCause.PREEMPTED, reason, None
        cause, detail, pod = ended
        if cause is EndCause.FAILED and pod is not None:
            line = self._cluster.last_line(pod["metadata"]["name"])
            detail = f"{line} ({detail})" if line else detail
        return self._end_all(anchor, pods, End(cause, detail, now))

    def _end_all(self, anchor: Document, pods: Sequence[Document], end: End) -> Document:
        for pod in pods:
            if not is_deleted(pod) and is_live(pod, now=end.at, since=None):
                self._cluster.delete_pod(pod["metadata"]["name"])
        return self._note(anchor, {manifests.END: end.as_text()})

    def _note(self, anchor: Document, annotations: Mapping[str, str]) -> Document:
        """Note something in the ConfigMap, and return it with that."""
        before = anchor["metadata"].get("annotations") or {}
        if any(before.get(key) != value for key, value in annotations.items()):
            self._cluster.annotate(anchor["metadata"]["name"], annotations)
        metadata = {**anchor["metadata"], "annotations": {**before, **annotations}}
        return {**anchor, "metadata": metadata}

    def _remove_old(self, anchor: Document, pods: Sequence[Document], now: float) -> None:
        """Delete an allocation that nobody asks about any more, some time after its end."""
        made_at = datetime.fromisoformat(anchor["metadata"]["creationTimestamp"]).timestamp()
        end = noted_end(anchor)
        is_old = now > max(made_at, end.at if end else 0.0) + _KEPT_S
        if is_old and not any(is_live(pod, now=now, since=None) for pod in pods):
            with suppress(Denied):
                self._cluster.remove_allocation(anchor["metadata"]["name"])

    # Explanations

    def _surroundings(
        self, anchors: Sequence[Document], pods: Mapping[str, Sequence[Document]]
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
            node = self._cluster.node(name)
            if node is not None:
                nodes[name] = node
        return Surroundings(by_pod(self._cluster.warnings()), nodes)

    def _check_quotas(self, order: AllocationOrder) -> None:
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
        for quota in self._cluster.quotas():
            spec: Mapping[str, Any] = quota.get("spec") or {}
            if spec.get("scopes") or spec.get("scopeSelector"):
                continue  # it may not count these pods
            for resource, limit in (spec.get("hard") or {}).items():
                if resource in totals and totals[resource] > parse_quantity(limit):
                    raise EngineRefused(
                        f"The quota {quota['metadata']['name']} of namespace "
                        f"{self._settings.namespace} allows {resource}={limit}, and this needs "
                        f"{totals[resource].normalize():f}."
                    )
