"""Settings of a Slurm pool."""

from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from portal.compute.adapters.engines.slurm.tokens import require_person

_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._:,=-]{0,99}"
_USER: Final = r"[a-z_][a-z0-9_-]{0,31}"
_PATH: Final = r"/[A-Za-z0-9._/+-]{0,500}"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class SlurmSettings(BaseModel):
    """Settings of a pool. `folder` and `python` are on the compute nodes.

    Jobs belong to the Unix user `user` (empty: the portal's own), or with `as_person` to the person
    who submits them. With `helper` each person runs the commands (`slipway pool helper`), and
    Slipway none. With `rest_url` slurmrestd is asked instead of commands, as `user` where it is
    about no person.
    """

    model_config = ConfigDict(extra="forbid")

    portal_url: str = Field(default="", pattern=r"^(https?://[^\s]{1,200})?$")
    partition: str = Field(default="", pattern=f"^({_WORD})?$")
    account: str = Field(default="", pattern=f"^({_WORD})?$")
    qos: str = Field(default="", pattern=f"^({_WORD})?$")
    constraint: str = Field(default="", pattern=r"^[A-Za-z0-9._&|*\[\]()-]{0,100}$")
    user: str = Field(default="", pattern=f"^({_USER})?$")
    as_person: bool = False
    helper: bool = False
    folder: str = Field(default="~/.slipway/nodes", pattern=rf"^(~{_PATH}|{_PATH})$")
    python: str = Field(default="", pattern=f"^({_PATH})?$")
    login: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._@-]{0,200})?$")
    rest_url: str = Field(default="", pattern=r"^(https?://[A-Za-z0-9.:\[\]_/-]{1,200})?$")
    slurm_conf: str = Field(default="", pattern=f"^({_PATH})?$")
    # Name or path of the program on the compute nodes that runs images of projects.
    container_runtime: str = Field(default="", pattern=rf"^(({_PATH}/)?(enroot|apptainer))?$")


def check_rest(settings: SlurmSettings) -> None:
    """Check what settings mean together. Raises ValueError with a sentence."""
    if settings.helper and any(
        (settings.user, settings.login, settings.rest_url, settings.slurm_conf)
    ):
        raise ValueError(
            "helper is instead of user, login, rest_url and slurm_conf; leave them out"
        )
    if not settings.rest_url:
        return
    host = urlsplit(settings.rest_url).hostname or ""
    if settings.rest_url.startswith("http:") and host not in _LOOPBACK:
        raise ValueError("rest_url must begin with https, because requests carry tokens")
    if settings.login or settings.slurm_conf:
        raise ValueError("login and slurm_conf are for the commands of Slurm; leave them out")
    if not settings.user:
        raise ValueError("rest_url needs user, the account as which Slipway asks about jobs")
    require_person(settings.user)
