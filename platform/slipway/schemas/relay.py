"""Wire contract of the relay, which carries connections to nodes that cannot be dialled.

The agent of such a node keeps one WebSocket to the relay open. For each served workload of the
node the relay has a Unix socket, its door. Only processes of the installation can open a door, and
what they send comes out of the socket that the workload listens on.
"""

import hashlib
import re
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from slipway.schemas.agent import Id
from slipway.schemas.base import AnswerSchema

# A name that no resolver knows (RFC 6761). The Hub and the notebooks' proxy dial the door instead.
RELAY_DOMAIN: Final = "relay.invalid"
RELAY_PATH: Final = "/relay"
RELAY_PORT: Final = 8007
DOOR_SUFFIX: Final = ".sock"
# Nothing listens there. Clients leave the usual port out of the Host header, and not this one.
_NAMED_PORT: Final = 8888
_DOOR_DIGITS: Final = 32
_HOST: Final = re.compile(rf"([0-9a-f]{{{_DOOR_DIGITS}}})\.{re.escape(RELAY_DOMAIN)}")


class RelayTarget(BaseModel):
    """One placement of a served workload."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workload_id: Id
    epoch: int = Field(ge=1, le=2**31)

    @property
    def name(self) -> str:
        """The name of its door, which says nothing about the workload."""
        placement = f"{self.workload_id}.{self.epoch}".encode()
        return hashlib.sha256(placement).hexdigest()[:_DOOR_DIGITS]

    @property
    def door(self) -> str:
        """The file name of its door."""
        return f"{self.name}{DOOR_SUFFIX}"

    @property
    def address(self) -> str:
        """Its `host:port` for the Hub, which stands for the door."""
        return f"{self.name}.{RELAY_DOMAIN}:{_NAMED_PORT}"


def door_name_of(host: str) -> str | None:
    """Return the file name of the door that a host name stands for, or None for other hosts."""
    match = _HOST.fullmatch(host)
    return f"{match[1]}{DOOR_SUFFIX}" if match else None


class ShellTarget(RelayTarget):
    """The shells of one task, which the shim of that task serves."""

    task_id: Id = Field(min_length=1)

    @property
    def name(self) -> str:
        placement = f"{self.workload_id}.{self.epoch}.{self.task_id}".encode()
        return hashlib.sha256(placement).hexdigest()[:_DOOR_DIGITS]


class DashboardTarget(RelayTarget):
    """The dashboard of a cluster, which the shim of the task of rank 0 serves."""

    dashboard_of: Id = Field(min_length=1)

    @property
    def name(self) -> str:
        placement = f"{self.workload_id}.{self.epoch}.{self.dashboard_of}.dashboard".encode()
        return hashlib.sha256(placement).hexdigest()[:_DOOR_DIGITS]


# A target that an agent may register.
AnyTarget = ShellTarget | DashboardTarget | RelayTarget


class RelayGrant(AnswerSchema):
    """Targets, shells and dashboards that a node may serve, and the address of the relay.

    Without `url` agents derive it from their address of the portal: the port `port` of the same
    host, or the path `/relay` if the portal is reached by https.
    """

    node_id: Id
    url: str = ""
    port: int = RELAY_PORT
    targets: list[RelayTarget] = Field(default_factory=list)
    # Apart from the others, whose form agents of earlier versions know.
    shells: list[ShellTarget] = Field(default_factory=list)
    dashboards: list[DashboardTarget] = Field(default_factory=list)

    def allows(self, target: AnyTarget) -> bool:
        """Return whether the node may serve the target."""
        if isinstance(target, ShellTarget):
            return target in self.shells
        if isinstance(target, DashboardTarget):
            return target in self.dashboards
        return target in self.targets
