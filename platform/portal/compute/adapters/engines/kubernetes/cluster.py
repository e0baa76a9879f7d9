"""One namespace of a cluster: the objects of allocations, and what explains them."""

from collections.abc import Mapping
from typing import Any, Final

from portal.compute.adapters.engines.kubernetes.connection import (
    Connection,
    Denied,
    Document,
    NotAllowed,
)
from portal.compute.adapters.engines.kubernetes.manifests import (
    ALLOCATION,
    CONTAINER,
    POOL,
    Manifest,
)
from portal.compute.engines import EngineAway

_TAIL_LINES: Final = 20


class Cluster:
    """One namespace of a cluster, for one pool. Calls raise EngineAway."""

    def __init__(self, pool: str, connection: Connection, namespace: str) -> None:
        self.namespace = namespace
        self._pool = pool
        self._connection = connection

    def labels(self) -> Mapping[str, str]:
        """Return the labels of the namespace itself. Raises NotAllowed, also if there is none."""
        document = self._connection.call("read_namespace", self.namespace)
        labels: Mapping[str, str] = document["metadata"].get("labels") or {}
        return labels

    # Allocations

    def create_config_map(self, manifest: Manifest) -> Document:
        """Create the ConfigMap of an allocation, and return it or the one that exists."""
        try:
            made: Document = self._connection.call(
                "create_namespaced_config_map", self.namespace, manifest
            )
            return made
        except FileExistsError:
            name = manifest["metadata"]["name"]
            existing = self.config_map(name)
            if existing is None:
                raise EngineAway(f"ConfigMap {name} is being deleted") from None
            return existing

    def config_map(self, name: str) -> Document | None:
        """Return the ConfigMap of an allocation, None if there is none."""
        try:
            document: Document = self._connection.call(
                "read_namespaced_config_map", name, self.namespace
            )
            return document
        except FileNotFoundError:
            return None

    def config_maps(self) -> list[Document]:
        """Return the ConfigMaps of all allocations of the pool."""
        return self._items("list_namespaced_config_map", f"{POOL}={self._pool}")

    def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Note something in the ConfigMap of an allocation. One that is gone is no error."""
        body = {"metadata": {"annotations": dict(annotations)}}
        try:
            self._connection.call("patch_namespaced_config_map", name, self.namespace, body)
        except FileNotFoundError:
            return

    def remove_allocation(self, name: str) -> None:
        """Delete the ConfigMap of an allocation, with all that it owns."""
        try:
            self._connection.call(
                "delete_namespaced_config_map",
                name,
                self.namespace,
                propagation_policy="Background",
            )
        except FileNotFoundError:
            return

    def create_secret(self, manifest: Manifest) -> None:
        """Create the Secret of an allocation, unless it exists."""
        try:
            self._connection.call("create_namespaced_secret", self.namespace, manifest)
        except FileExistsError:
            return

    # Pods

    def create_pod(self, manifest: Manifest, *, account: str = "") -> None:
        """Create a pod, unless it exists, as the user `account` if given. Raises Denied."""
        try:
            self._connection.call(
                "create_namespaced_pod", self.namespace, manifest, account=account
            )
        except FileExistsError:
            return
        except NotAllowed as error:
            if not account:
                raise
            # It concerns the work of one person, and not the pool.
            raise Denied(str(error)) from error

    def pods(self) -> list[Document]:
        """Return all pods of the pool."""
        return self._items("list_namespaced_pod", f"{POOL}={self._pool}")

    def pods_of(self, allocation: str) -> list[Document]:
        """Return the pods of an allocation."""
        return self._items("list_namespaced_pod", f"{ALLOCATION}={allocation}")

    def delete_pod(self, name: str) -> None:
        """Ask a pod to end within its grace. One that is gone is no error."""
        try:
            self._connection.call("delete_namespaced_pod", name, self.namespace)
        except FileNotFoundError:
            return

    def last_line(self, pod: str) -> str:
        """Return the last line that the agent in a pod has printed, "" if it cannot be read."""
        try:
            answer: str = self._connection.call(
                "read_namespaced_pod_log",
                pod,
                self.namespace,
                container=CONTAINER,
                tail_lines=_TAIL_LINES,
                parse=lambda data: data.decode("utf-8", "replace"),
            )
        except (Denied, FileNotFoundError, EngineAway):
            return ""
        lines = [line.strip() for line in answer.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    # Explanations, where the account may read them

    def warnings(self) -> list[Document]:
        """Return the warnings about pods, and what the scheduler says of preempted ones."""
        selector = "involvedObject.kind=Pod"
        events = self._allowed("list_namespaced_event", field_selector=selector)
        return [
            event
            for event in events
            if event.get("type") == "Warning"
            or event.get("reason") in ("Preempted", "TaintManagerEviction")
        ]

    def node(self, name: str) -> Document | None:
        """Return a node, None if the account may not read nodes."""
        try:
            node: Document = self._connection.call("read_node", name)
            return node
        except (Denied, EngineAway, FileNotFoundError):
            return None

    def quotas(self) -> list[Document]:
        """Return the quotas of the namespace, none if the account may not read them."""
        return self._allowed("list_namespaced_resource_quota")

    def _items(self, method: str, label_selector: str) -> list[Document]:
        answer = self._connection.call(method, self.namespace, label_selector=label_selector)
        items: list[Document] = answer.get("items") or []
        return items

    def _allowed(self, method: str, **options: Any) -> list[Document]:
        try:
            answer = self._connection.call(method, self.namespace, **options)
        except (Denied, NotAllowed):
            return []
        items: list[Document] = answer.get("items") or []
        return items
