"""Requests to the API of Kubernetes by its official client, as the account of a pool.

Answers are the API's own documents. They are not turned into the client's classes, which check what
servers of other versions send.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from portal.compute.adapters.engines.kubernetes.settings import KubernetesSettings
from portal.compute.engines import EngineAway, EngineUnusable

Document = Mapping[str, Any]
# Seconds to connect, and to read an answer.
_PATIENCE_S: Final = (5.0, 20.0)
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
# Answers that say that the order itself is wrong.
_REFUSALS: Final = frozenset({400, _FORBIDDEN, 422})
_IMPERSONATED: Final = "Impersonate-User"


class Denied(Exception):
    """The API refuses an object: an admission rule, a quota, or a value that is not valid."""

    @property
    def is_quota(self) -> bool:
        """True if it may be accepted once others have ended."""
        return "exceeded quota" in str(self)


class NotAllowed(EngineUnusable):
    """The account of the pool lacks a right, or its namespace does not exist."""


class Connection:
    """The API of a cluster, for one pool. Connections stay open."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._client: client.ApiClient | None = None

    def call(
        self,
        method: str,
        *arguments: Any,
        parse: Callable[[bytes], Any] = json.loads,
        account: str = "",
        **options: Any,
    ) -> Any:
        """Make one request of the core API, as the user `account` if given. Return its answer.

        Raises EngineAway, Denied, FileExistsError and FileNotFoundError.
        """
        user = account or self._settings.impersonate
        headers = {_IMPERSONATED: user} if user else {}
        try:
            answer = getattr(client.CoreV1Api(self._connect()), method)(
                *arguments,
                **options,
                _headers=headers,
                _preload_content=False,
                _request_timeout=_PATIENCE_S,
            )
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
                raise EngineUnusable(f"{place} cannot be used: {error}") from error
            self._client = client.ApiClient(configuration)
        return self._client

    def _server(self) -> str:
        if self._client is None:
            return "Kubernetes"
        return str(urlsplit(self._client.configuration.host).netloc)

    def _error_of(self, error: ApiException) -> Exception:
        message = _message_of(error)
        if error.status == _UNAUTHORIZED:
            self._client = None  # its credentials may have been replaced in the file
            return EngineUnusable(f"it does not accept the credentials of the pool: {message}")
        if error.status == _NOT_FOUND:
            return NotAllowed(message) if "namespaces" in message else FileNotFoundError(message)
        if error.status == _CONFLICT and _reason_of(error) == "AlreadyExists":
            return FileExistsError(message)
        if error.status == _FORBIDDEN and "cannot " in message and " resource " in message:
            return NotAllowed(message)
        if error.status in _REFUSALS:
            return Denied(message)
        return EngineAway(message)


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
