"""Makes containers with a node agent on a Docker engine, and removes them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, NotFound

from portal.compute.adapters.provisioners.docker_engine.container import (
    GROUP_LABEL,
    MACHINE_LABEL,
    container_config,
    container_name,
    token_archive,
)
from portal.compute.adapters.provisioners.docker_engine.settings import DockerGroupSettings
from portal.compute.provisioners import (
    MachineOrder,
    MachinePhase,
    MachineReport,
    ProvisionerAway,
    ProvisionerRefused,
)

_TIMEOUT_S = 30
# Nothing runs on a node that is released, so its agent ends at once.
_STOP_WITHIN_S = 5
_TAIL_LINES = 200
_TAIL_BYTES = 4000
_PHASES = {
    "created": MachinePhase.STARTING,
    "running": MachinePhase.RUNNING,
    "restarting": MachinePhase.RUNNING,
    "paused": MachinePhase.RUNNING,
}


class DockerProvisioner:
    """The containers of one group. They have its id as a label."""

    def __init__(self, group: str, settings: DockerGroupSettings, *, url: str) -> None:
        """Agents reach the portal at `url`."""
        self._group = group
        self._settings = settings
        self._url = url
        self._opened: Any = None

    def make(self, order: MachineOrder) -> str:
        """Create and start a container. Raises ProvisionerRefused, ProvisionerAway."""
        if order.amount.gpus:
            raise ProvisionerRefused("Nodes in containers have no GPUs. Use a group without GPUs.")
        with _plain_errors(refuses=True):
            containers = self._containers()
            known = next(
                (row for row in containers if row["Labels"][MACHINE_LABEL] == order.name), None
            )
            if known is not None and known["State"] != "created":
                return str(known["Id"])
            if known is None and len(containers) >= self._settings.machines:
                raise ProvisionerRefused(
                    f"The group has its {self._settings.machines} containers (setting machines), "
                    "and all of them exist."
                )
            handle = str(known["Id"]) if known is not None else self._create(order)
            client = self._client()
            try:
                client.put_archive(handle, "/", token_archive(order))
                client.start(handle)
            except APIError:
                with suppress(APIError):
                    client.remove_container(handle, v=True, force=True)
                raise
        return handle

    def look(self) -> Mapping[str, MachineReport]:
        """Report on the containers of the group, also on ended ones. Raises ProvisionerAway."""
        with _plain_errors():
            reports = map(_report, self._containers())
            return {report.name: report for report in reports}

    def release(self, handle: str) -> None:
        """Stop a container and remove it with its volumes. Raises ProvisionerAway."""
        with _plain_errors(), suppress(NotFound):
            client = self._client()
            client.stop(handle, timeout=_STOP_WITHIN_S)
            try:
                client.remove_container(handle, v=True, force=True)
            except APIError as error:
                if error.status_code != requests.codes.conflict:  # it is being removed
                    raise

    def output(self, handle: str) -> str:
        """Return the end of the log of a container. Raises ProvisionerAway."""
        with _plain_errors(), suppress(NotFound):
            data: bytes = self._client().logs(handle, tail=_TAIL_LINES)
            return data[-_TAIL_BYTES:].decode("utf-8", "replace")
        return ""

    def _containers(self) -> list[dict[str, Any]]:
        labels = [f"{GROUP_LABEL}={self._group}", MACHINE_LABEL]
        rows: list[dict[str, Any]] = self._client().containers(all=True, filters={"label": labels})
        return rows

    def _create(self, order: MachineOrder) -> str:
        config = container_config(self._group, order, self._settings, url=self._url)
        created = self._client().create_container_from_config(config, container_name(order.name))
        return str(created["Id"])

    def _client(self) -> Any:
        if self._opened is None:
            self._opened = docker.APIClient(
                f"unix://{self._settings.socket}", version="auto", timeout=_TIMEOUT_S
            )
            # No passwords from ~/.netrc: the engine is on this machine.
            self._opened.trust_env = False
        return self._opened


def _report(row: Mapping[str, Any]) -> MachineReport:
    # An ended container has its disk, and is removed like one that runs.
    phase = _PHASES.get(row["State"], MachinePhase.ENDING)
    status = re.match(r"Exited \((\d+)\)", str(row.get("Status", "")))
    detail = f"The container ended with status {status[1]}" if status else row["State"]
    return MachineReport(row["Labels"][MACHINE_LABEL], row["Id"], phase, detail)


@contextmanager
def _plain_errors(*, refuses: bool = False) -> Iterator[None]:
    """Turn errors of the client into those of the port. With `refuses` an order may be refused."""
    try:
        yield
    except NotFound as error:
        if not refuses:
            raise
        raise ProvisionerRefused(_text(error)) from error
    except APIError as error:
        # A container that cannot be started is an error 500, too.
        if refuses:
            raise ProvisionerRefused(_text(error)) from error
        raise ProvisionerAway(_text(error)) from error
    except (DockerException, requests.RequestException) as error:
        raise ProvisionerAway(f"{error}") from error


def _text(error: APIError) -> str:
    text = str(error.explanation or error).strip().rstrip(".")
    return f"{text}."
