"""The kind of pools of Slurm: checks their settings and opens them by one of three transports."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from portal.compute.adapters.engines.slurm.commands import SlurmEngine
from portal.compute.adapters.engines.slurm.person import SlurmPersonEngine
from portal.compute.adapters.engines.slurm.rest import SlurmRestEngine
from portal.compute.adapters.engines.slurm.rest_api import SlurmRestApi
from portal.compute.adapters.engines.slurm.settings import SlurmSettings, check_rest
from portal.compute.adapters.engines.slurm.tokens import SlurmKeys
from portal.compute.engines import Engine
from portal.core.errors import InvalidInput


class SlurmEngineKind:
    """Pools of Slurm partitions."""

    label = "Slurm"

    def __init__(self, url: str, python: str, task_python: str = "", *, keys: Path) -> None:
        """Agents reach the portal at `url`, unless the pool says otherwise.

        `keys` is the folder of the keys that sign tokens for slurmrestd.
        """
        self._keys = SlurmKeys(keys)
        self._apis: dict[str, SlurmRestApi] = {}
        self._url = url
        self._python = python
        self._task_python = task_python

    def clean(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked settings. Raises InvalidInput."""
        try:
            checked = SlurmSettings.model_validate(dict(settings))
            check_rest(checked)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"]) or "settings"
            if first["type"] == "extra_forbidden":
                message = f"A Slurm pool has no setting {name}."
            else:
                message = f"The setting {name} is not valid: {first['msg']}."
            raise InvalidInput(
                message,
                field="settings",
                next_step=f"Settings: {', '.join(SlurmSettings.model_fields)}.",
            ) from error
        except ValueError as error:
            raise InvalidInput(
                f"The settings do not fit together: {error}.",
                field="settings",
                next_step="See docs/slurm.md on slurmrestd and on helpers.",
            ) from error
        return checked.model_dump(exclude_defaults=True)

    def image_obstacle(self, settings: Mapping[str, Any]) -> str:
        """Return an obstacle unless the site has a program that runs images."""
        if settings.get("container_runtime"):
            return ""
        return "its setting container_runtime names neither Enroot nor Apptainer"

    def needs_account(self, settings: Mapping[str, Any]) -> bool:
        """Return True if jobs belong to the person who submits them."""
        return bool(settings.get("as_person") or settings.get("helper"))

    def uses_helpers(self, settings: Mapping[str, Any]) -> bool:
        """Return True if each person runs the commands of Slurm on a login node."""
        return bool(settings.get("helper"))

    def given_accounts(self, settings: Mapping[str, Any]) -> None:
        """Return None: no administrator gives accounts here."""

    def link_command(self, settings: Mapping[str, Any], name: str) -> str:
        """Return the command to run on a login node."""
        checked = SlurmSettings.model_validate(dict(settings))
        choices = {
            "partition": checked.partition,
            "account": checked.account,
            "qos": checked.qos,
        }
        options = [f"--{option}={value}" for option, value in choices.items() if value]
        job = ("--time=1", "--output=/dev/null", "--wrap=true")
        return shlex.join(["sbatch", f"--job-name={name}", *options, *job])

    def open(self, pool: str, settings: Mapping[str, Any]) -> Engine:
        """Return the engine of a pool."""
        checked = SlurmSettings.model_validate(dict(settings))
        url, python = checked.portal_url or self._url, checked.python or self._python
        if checked.helper:
            return SlurmPersonEngine(
                pool, checked, url=url, python=python, task_python=self._task_python
            )
        if not checked.rest_url:
            return SlurmEngine(checked, url=url, python=python, task_python=self._task_python)
        # Kept, because a new one asks for the whole specification of slurmrestd.
        api = self._apis.get(checked.rest_url)
        if api is None:
            api = self._apis[checked.rest_url] = SlurmRestApi(checked.rest_url, self._keys)
        return SlurmRestEngine(checked, api, url=url, python=python, task_python=self._task_python)
