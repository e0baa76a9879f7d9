"""Settings of a node group on Amazon EC2, each of them a line of text."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_ADDRESS: Final = r"https?://[A-Za-z0-9.:\[\]_-]{1,253}(/[A-Za-z0-9._/-]*)?"


def _matching(pattern: str, description: str) -> AfterValidator:
    def check(text: str) -> str:
        if text and not re.fullmatch(pattern, text):
            raise ValueError(f"it must be {description}")
        return text

    return AfterValidator(check)


class Ec2Settings(BaseModel):
    """Settings of a group. `python`, `task_python` and `folder` are in the image of the machines.

    Credentials are those of the control worker: its environment, its files (`profile`), or the role
    of its machine. They are never in a group.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    region: Annotated[str, _matching(r"[a-z0-9-]{3,32}", "a region such as eu-central-1")]
    launch_template: Annotated[
        str, _matching(r"[A-Za-z0-9().\-/_]{3,128}", "the id or name of a launch template")
    ]
    launch_template_version: Annotated[
        str, _matching(r"[0-9]{1,9}|\$Default|\$Latest", "a number, $Default or $Latest")
    ] = "$Default"
    instance_type: Annotated[str, _matching(r"[a-z0-9.-]{2,64}", "a type such as g5.xlarge")] = ""
    subnet: Annotated[str, _matching(r"subnet-[0-9a-f]{1,32}", "the id of a subnet")] = ""
    profile: Annotated[str, _matching(r"[\w.@/-]{1,64}", "the name of a profile")] = ""
    endpoint: Annotated[str, _matching(_ADDRESS, "an address of the API of EC2")] = ""
    portal_url: Annotated[str, _matching(_ADDRESS, "an address of the portal")] = ""
    python: Annotated[str, _matching(r"[A-Za-z0-9._/+-]{1,500}", "an interpreter")] = "python3"
    task_python: Annotated[str, _matching(r"[A-Za-z0-9._/+-]{1,500}", "an interpreter")] = ""
    folder: Annotated[str, _matching(r"/[A-Za-z0-9._/+-]{1,200}", "an absolute path")] = Field(
        default="/var/lib/slipway"
    )
    backend: Annotated[str, _matching(r"process|docker", "process or docker")] = "process"
