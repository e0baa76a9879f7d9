"""Settings of pools of a Ray cluster."""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

_PATH: Final = r"/[A-Za-z0-9._/+-]{0,500}"


class RaySettings(BaseModel):
    """Settings of a pool. `folder`, `python` and `ray_python` are on the nodes of the cluster.

    `address` is that of Ray's dashboard, which serves the Jobs API. `token_file`, on the machine of
    the portal, holds the token of a cluster that asks for one. `python` runs the agents, and
    `ray_python` the driver: it has Ray.
    """

    model_config = ConfigDict(extra="forbid")

    address: str = Field(pattern=r"^https?://[A-Za-z0-9.\[\]:_-]{1,200}(/[A-Za-z0-9._/-]{0,200})?$")
    token_file: str = Field(default="", pattern=f"^({_PATH})?$")
    portal_url: str = Field(default="", pattern=r"^(https?://[^\s]{1,200})?$")
    folder: str = Field(default="~/.slipway/nodes", pattern=rf"^(~{_PATH}|{_PATH})$")
    python: str = Field(default="", pattern=f"^({_PATH})?$")
    ray_python: str = Field(default="", pattern=f"^({_PATH})?$")
