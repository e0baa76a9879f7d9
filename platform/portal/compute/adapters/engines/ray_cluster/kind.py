"""Registers Ray clusters as an engine."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from portal.compute.adapters.engines.ray_cluster.engine import RayEngine
from portal.compute.adapters.engines.ray_cluster.settings import RaySettings
from portal.compute.engines import Engine
from portal.core.errors import InvalidInput


class RayEngineKind:
    """Pools of Ray clusters. Whoever uses one can reach all work in it, so it is for one team."""

    label = "Ray"

    def __init__(self, url: str, python: str, task_python: str = "") -> None:
        """Agents reach the portal at `url`, unless the pool says otherwise."""
        self._url, self._python, self._task_python = url, python, task_python

    def clean(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked settings. Raises InvalidInput."""
        try:
            return RaySettings.model_validate(dict(settings)).model_dump(exclude_defaults=True)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"]) or "settings"
            message = {
                "extra_forbidden": f"A Ray pool has no setting {name}.",
                "missing": f"A Ray pool needs the setting {name}.",
            }.get(first["type"], f"The setting {name} is not valid: {first['msg']}.")
            raise InvalidInput(
                message,
                field="settings",
                next_step=f"Settings: {', '.join(RaySettings.model_fields)}.",
            ) from error

    def image_obstacle(self, settings: Mapping[str, Any]) -> str:
        """Return an obstacle: tasks run in the folders of their nodes."""
        return "Ray pools run no images of projects"

    def needs_account(self, settings: Mapping[str, Any]) -> bool:
        """Return False: all work in a Ray cluster belongs to the user of the cluster."""
        return False

    def uses_helpers(self, settings: Mapping[str, Any]) -> bool:
        """Return False: Slipway itself reaches the scheduler."""
        return False

    def given_accounts(self, settings: Mapping[str, Any]) -> None:
        """Return None: there are no accounts."""

    def link_command(self, settings: Mapping[str, Any], name: str) -> str:
        """Return nothing: there is no account to prove."""
        return ""

    def open(self, pool: str, settings: Mapping[str, Any]) -> Engine:
        """Return the engine of a pool."""
        checked = RaySettings.model_validate(dict(settings))
        return RayEngine(
            checked,
            url=checked.portal_url or self._url,
            python=checked.python or self._python,
            task_python=self._task_python,
        )
