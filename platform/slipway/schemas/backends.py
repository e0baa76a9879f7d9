"""Back ends: the ways in which a node runs a task, and their capabilities.

The one table of them. The portal reads the capabilities, a node has an implementation by the same
name (`workers.node_agent.backends`).
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

IsolationLevel = Literal["namespaces", "users", "containers", "shared"]


@dataclass(frozen=True)
class BackendInfo:
    """Capabilities of one back end.

    `label` is shown in forms. `runs_gangs` is True if tasks on several nodes can reach each other.
    `can_warm` is True if tasks can be forked from a warm process. `uses_pythons` is True if
    environments are built with an interpreter of the node, `builds_images` is True if it runs tasks
    in images that are built from Dockerfiles of projects. `unreported_isolation` is the
    isolation of projects that is assumed of a node that does not report it.
    """

    name: str
    label: str
    runs_gangs: bool
    can_warm: bool
    uses_pythons: bool
    builds_images: bool
    unreported_isolation: IsolationLevel


BACKENDS: Final = {
    info.name: info
    for info in (
        BackendInfo(
            name="process",
            label="Process",
            runs_gangs=True,
            can_warm=True,
            uses_pythons=True,
            builds_images=False,
            unreported_isolation="shared",
        ),
        # Each engine has networks of its own, and nothing joins them.
        BackendInfo(
            name="docker",
            label="Docker container",
            runs_gangs=False,
            can_warm=False,
            uses_pythons=False,
            builds_images=True,
            unreported_isolation="containers",
        ),
    )
}
DEFAULT_BACKEND: Final = "process"


def label_of(name: str) -> str:
    """Return the label of a back end: its name if it is no longer in the table."""
    return BACKENDS[name].label if name in BACKENDS else name


def _known(name: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f"must be {' or '.join(BACKENDS)}")
    return name


BackendName = Annotated[
    str, AfterValidator(_known), Field(json_schema_extra={"enum": list(BACKENDS)})
]
