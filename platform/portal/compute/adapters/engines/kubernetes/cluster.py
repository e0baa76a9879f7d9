"""Calls of the API of Kubernetes, by its official client. Answers are the API's own documents.

They are not turned into the client's classes, which check what servers of other versions send.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from portal.compute.adapters.engines.kubernetes.manifests import ALLOCATION, POOL, Manifest
from portal.compute.adapters.engines.kubernetes.settings import KubernetesSettings
from portal.compute.engines import EngineAway

Document = Mapping[str, Any]
# Seconds to connect, and to read an answer.
_PATIENCE_S: Final = (5.0, 20.0)
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
# Answers that say that the order itself is wrong.
_REFUSALS: Final = frozenset({400, _FORBIDDEN, 422})
_TAIL_LINES: Final = 20


class Denied(Exception):
    """The API refuses an object: an admission rule, a quota, or a value that is not valid."""

    @property
    def is_quota(self) -> bool:
        """True if it may be accepted once others have ended."""
        return "exceeded quota" in str(self)


class Cluster:
    """One namespace of a cluster, for one pool. Calls raise EngineAway."""

    def __init__(self, pool: str, settings: KubernetesSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._namespace = settings.namespace
        self._client: client.ApiClient | None = None

    # Allocations

    def create_config_map(self, manifest: Manifest) -> Document:
        """Create the ConfigMap of an allocation, and return it or the one that exists."""
        try:
            made: Document = self._call(
                lambda core: core.create_namespaced_config_map(self._namespace, manifest, **_RAW)
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
            document: Document = self._call(
                lambda core: core.read_namespaced_config_map(name, self._namespace, **_RAW)
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
            self._call(
                lambda core: core.patch_namespaced_config_map(name, self._namespace, body, **_RAW)
            )
        except FileNotFoundError:
            return

    def remove_allocation(self, name: str) -> None:
        """Delete the ConfigMap of an allocation, with all that it owns."""
        try:
            self._call(
                lambda core: core.delete_namespaced_config_map(
                    name, self._namespace, propagation_policy="Background", **_RAW
                )
            )
        except FileNotFoundError:
            return

    def create_secret(self, manifest: Manifest) -> None:
        """Create the Secret of an allocation, unless it exists."""
        try:
            self._call(
                lambda core: core.create_namespaced_secret(self._namespace, manifest, **_RAW)
            )
        except FileExistsError:
            return

    # Pods

    def create_pod(self, manifest: Manifest) -> None:
        """Create a pod, unless it exists. Raises Denied."""
        try:
            self._call(lambda core: core.create_namespaced_pod(self._namespace, manifest, **_RAW))
        except FileExistsError:
            return

    def pods(self) -> list[Document]:
        """Return all pods of the pool."""
        return self._items("list_namespaced_pod", f"{POOL}={self._pool}")

    def pods_of(self, allocation: str) -> list[Document]:
        """Return the pods of an allocation."""
        return self._items("list_namespaced_pod", f"{ALLOCATION}={allocation}")

    def delete_pod(self, name: str) -> None:
        """Ask a pod to end within its grace. One that is gone is no error."""
        try:
            self._call(lambda core: core.delete_namespaced_pod(name, self._namespace, **_RAW))
        except FileNotFoundError:
            return

    def last_line(self, pod: str) -> str:
        """Return the last line that the agent in a pod has printed, "" if it cannot be read."""
        try:
            answer: str = self._call(
                lambda core: core.read_namespaced_pod_log(
                    pod, self._namespace, tail_lines=_TAIL_LINES, **_RAW
                ),
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
            node: Document = self._call(lambda core: core.read_node(name, **_RAW))
            return node
        except (Denied, EngineAway, FileNotFoundError):
            return None

    def quotas(self) -> list[Document]:
        """Return the quotas of the namespace, none if the account may not read them."""
        return self._allowed("list_namespaced_resource_quota")

    # The client

    def _items(self, method: str, label_selector: str) -> list[Document]:
        answer = self._call(
            lambda core: getattr(core, method)(
                self._namespace, label_selector=label_selector, **_RAW
            )
        )
        items: list[Document] = answer.get("items") or []
        return items

    def _allowed(self, method: str, **options: str) -> list[Document]:
        try:
            answer = self._call(
                lambda core: getattr(core, method)(self._namespace, **options, **_RAW)
            )
        except (Denied, _NotAllowed):
            return []
        items: list[Document] = answer.get("items") or []
        return items

    def _call(
        self,
        call: Callable[[client.CoreV1Api], Any],
        parse: Callable[[bytes], Any] = json.loads,
    ) -> Any:
        """Make one request and return its parsed answer.

        Raises EngineAway, Denied, FileExistsError and FileNotFoundError.
        """
        try:
            answer = call(client.CoreV1Api(self._connect()))
            return parse(answer.data)
        except ApiException as error:
            raise self._error_of(error) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise EngineAway(f"{self._server()}: {str(reason).rpartition(': ')[2]}") from error
        except ValueError as error:
            raise EngineAway(f"{self._server()} answers with something else than JSON") from error

    def _connect(self) -> client.ApiClient:
        if self._client is None:
            settings = self._settings
            configuration = client.Configuration()
            configuration.retries = False
            try:
                if settings.kubeconfig:
                    load_kube_config(
                        settings.kubeconfig,
                        context=settings.context or None,
                        client_configuration=configuration,
                        persist_config=False,
                    )
                else:
                    load_incluster_config(client_configuration=configuration)
            except (ConfigException, OSError, ValueError) as error:
                place = settings.kubeconfig or "the account of the portal's own pod"
                raise EngineAway(f"{place} cannot be used: {error}") from error
            self._client = client.ApiClient(configuration)
            if settings.impersonate:
                self._client.set_default_header("Impersonate-User", settings.impersonate)
        return self._client

    def _server(self) -> str:
        if self._client is None:
            return "Kubernetes"
        return str(urlsplit(self._client.configuration.host).netloc)

    def _error_of(self, error: ApiException) -> Exception:
        message = _message_of(error)
        if error.status == _UNAUTHORIZED:
            self._client = None  # its credentials may have been replaced in the file
            return EngineAway(f"it does not accept the credentials of the pool: {message}")
        if error.status == _NOT_FOUND and "namespaces" not in message:
            return FileNotFoundError(message)
        if error.status == _CONFLICT and _reason_of(error) == "AlreadyExists":
            return FileExistsError(message)
        if error.status == _FORBIDDEN and "cannot " in message and " resource " in message:
            return _NotAllowed(message)
        if error.status in _REFUSALS:
            return Denied(message)
        return EngineAway(message)


class _NotAllowed(EngineAway):
    """The account of the pool lacks a right, which an administrator can give."""


# Every call returns the answer as it came.
_RAW: Final[dict[str, Any]] = {"_preload_content": False, "_request_timeout": _PATIENCE_S}


def _status_of(error: ApiException) -> Document:
    try:
        document = json.loads(error.body or "")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _reason_of(error: ApiException) -> str:
    return str(_status_of(error).get("reason", ""))


def _message_of(error: ApiException) -> str:
    return str(_status_of(error).get("message") or f"{error.status} {error.reason}")
