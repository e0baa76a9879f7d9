"""Registers Kubernetes as an engine. The client of its API is imported when a pool is opened."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from pydantic import ValidationError

from portal.compute.adapters.engines.kubernetes.settings import KubernetesSettings
from portal.compute.engines import Engine
from portal.core.errors import InvalidInput

_ENGINE = "portal.compute.adapters.engines.kubernetes.engine"


class KubernetesEngineKind:
    """Pools of namespaces in Kubernetes."""

    label = "Kubernetes"

    def __init__(self, url: str) -> None:
        """Agents reach the portal at `url`, unless the pool says otherwise."""
        self._url = url
        self._open: dict[str, tuple[Mapping[str, Any], Engine]] = {}

    def clean(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked settings. Raises InvalidInput."""
        try:
            return KubernetesSettings.model_validate(dict(settings)).model_dump(
                exclude_defaults=True
            )
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"]) or "settings"
            if first["type"] == "extra_forbidden":
                message = f"A Kubernetes pool has no setting {name}."
            elif not first["loc"]:
                reason = first["msg"].removeprefix("Value error, ")
                message = f"The settings do not fit together: {reason}."
            else:
                reason = first["msg"].removeprefix("Value error, ")
                message = f"The setting {name} is not valid: {reason}."
            raise InvalidInput(
                message,
                field="settings",
                next_step=f"Settings: {', '.join(KubernetesSettings.model_fields)}.",
            ) from error

    def needs_account(self, settings: Mapping[str, Any]) -> bool:
        """Return True if pods are created as the person who submits the work."""
        return bool(settings.get("as_person"))

    def uses_helpers(self, settings: Mapping[str, Any]) -> bool:
        """Return False: Slipway itself reaches the scheduler."""
        return False

    def given_accounts(self, settings: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Return the table of an administrator: Kubernetes stores no owner that proves one."""
        return KubernetesSettings.model_validate(dict(settings)).accounts

    def image_obstacle(self, settings: Mapping[str, Any]) -> str:
        """Return nothing: a pod may have a container of any image."""
        return ""

    def link_command(self, settings: Mapping[str, Any], name: str) -> str:
        """Return nothing: there is no account to prove."""
        return ""

    def open(self, pool: str, settings: Mapping[str, Any]) -> Engine:
        """Return the engine of a pool. Its connections stay open for as long as its settings."""
        known = self._open.get(pool)
        if known is None or known[0] != settings:
            checked = KubernetesSettings.model_validate(dict(settings))
            # Only the control worker opens pools, so only it loads the client.
            module = import_module(_ENGINE)
            engine = module.KubernetesEngine(pool, checked, url=checked.portal_url or self._url)
            known = self._open[pool] = (dict(settings), cast("Engine", engine))
        return known[1]
