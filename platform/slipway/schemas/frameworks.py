"""Frameworks whose cluster a job forms over its ranks before its script starts.

The one table of them. Nodes have an implementation by the same name (`workers.launcher.clusters`).
"""

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, Field


@dataclass(frozen=True)
class FrameworkInfo:
    """A framework: its `label` in forms, and the `variable` with the address of the cluster."""

    name: str
    label: str
    variable: str


FRAMEWORKS: Final = {
    info.name: info
    for info in (
        FrameworkInfo("ray", "Ray", "RAY_ADDRESS"),
        FrameworkInfo("dask", "Dask", "DASK_SCHEDULER_ADDRESS"),
    )
}


def framework_label(name: str | None) -> str:
    """Return the label of a framework, "" without one."""
    return FRAMEWORKS[name].label if name in FRAMEWORKS else name or ""


def _known(name: str) -> str:
    if name not in FRAMEWORKS:
        raise ValueError(f"must be {' or '.join(FRAMEWORKS)}")
    return name


FrameworkName = Annotated[
    str, AfterValidator(_known), Field(json_schema_extra={"enum": list(FRAMEWORKS)})
]
