"""Settings of a node group on Amazon EC2, each of them a line of text."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from portal.compute.adapters.provisioners.setting_rules import ADDRESS, matching


class Ec2Settings(BaseModel):
    """Settings of a group. `python`, `task_python` and `folder` are in the image of the machines.

    Credentials are those of the control worker: its environment, its files (`profile`), or the role
    of its machine. They are never in a group.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    region: Annotated[str, matching(r"[a-z0-9-]{3,32}", "a region such as eu-central-1")]
    launch_template: Annotated[
        str, matching(r"[A-Za-z0-9().\-/_]{3,128}", "the id or name of a launch template")
    ]
    launch_template_version: Annotated[
        str, matching(r"[0-9]{1,9}|\$Default|\$Latest", "a number, $Default or $Latest")
    ] = "$Default"
    instance_type: Annotated[str, matching(r"[a-z0-9.-]{2,64}", "a type such as g5.xlarge")] = ""
    subnet: Annotated[str, matching(r"subnet-[0-9a-f]{1,32}", "the id of a subnet")] = ""
    profile: Annotated[str, matching(r"[\w.@/-]{1,64}", "the name of a profile")] = ""
    endpoint: Annotated[str, matching(ADDRESS, "an address of the API of EC2")] = ""
    portal_url: Annotated[str, matching(ADDRESS, "an address of the portal")] = ""
    python: Annotated[str, matching(r"[A-Za-z0-9._/+-]{1,500}", "an interpreter")] = "python3"
    task_python: Annotated[str, matching(r"[A-Za-z0-9._/+-]{1,500}", "an interpreter")] = ""
    folder: Annotated[str, matching(r"/[A-Za-z0-9._/+-]{1,200}", "an absolute path")] = Field(
        default="/var/lib/slipway"
    )
    # Cheaper capacity that Amazon may take back at any time.
    spot: bool = False
    backend: Annotated[str, matching(r"process|docker", "process or docker")] = "process"
