"""Settings of a node group whose nodes are containers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from portal.compute.adapters.provisioners.setting_rules import ADDRESS, matching

MOST_MACHINES = 256


class DockerGroupSettings(BaseModel):
    """Settings of a group. `socket` is on the machine of the control worker.

    `image` has the node agent as its entry point, as `deploy/images/node.Dockerfile` makes it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    image: Annotated[
        str,
        matching(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}", "the name of an image"),
    ] = "slipway/node"
    socket: Annotated[str, matching(r"/[A-Za-z0-9._/+-]{1,100}", "an absolute path")] = Field(
        default="/var/run/docker.sock"
    )
    network: Annotated[
        str, matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", "the name of a network")
    ] = "bridge"
    portal_url: Annotated[str, matching(ADDRESS, "an address of the portal")] = ""
    machines: Annotated[int, Field(ge=1, le=MOST_MACHINES)] = 4
    isolation: Annotated[str, matching("shared|namespaces", "shared or namespaces")] = "shared"
