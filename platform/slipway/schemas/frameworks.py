"""Frameworks whose cluster a job forms over its ranks before its script starts.

The one table of them. Nodes have an implementation by the same name (`workers.launcher.clusters`).
"""

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, Field


@dataclass(frozen=True)
class FrameworkInfo:
    """A framework: its `label` in forms, the `variable` that leads the script to the cluster.

    `least_ranks` is the number of ranks without which there is no cluster, and `reason` says why.
    `dashboard` is the name of its dashboard if people can open it.
    """

    name: str
    label: str
    variable: str
    least_ranks: int = 1
    reason: str = ""
    dashboard: str = ""


FRAMEWORKS: Final = {
    info.name: info
    for info in (
        FrameworkInfo("ray", "Ray", "RAY_ADDRESS", dashboard="Ray dashboard"),
        FrameworkInfo("dask", "Dask", "DASK_SCHEDULER_ADDRESS"),
        FrameworkInfo(
            "parameter_server",
            "TensorFlow parameter servers",
            "TF_CONFIG",
            least_ranks=3,
            reason="a coordinator, which runs the script, a parameter server and a worker",
        ),
    )
}


def framework_label(name: str | None) -> str:
    """Return the label of a framework, "" without one."""
    return FRAMEWORKS[name].label if name in FRAMEWORKS else name or ""


def has_dashboard(name: str | None) -> bool:
    """Return whether people can open the dashboard of a framework's cluster."""
    return name in FRAMEWORKS and bool(FRAMEWORKS[name].dashboard)


def _known(name: str) -> str:
    if name not in FRAMEWORKS:
        *names, last = FRAMEWORKS
        raise ValueError(f"must be {', '.join(names)} or {last}")
    return name


FrameworkName = Annotated[
    str, AfterValidator(_known), Field(json_schema_extra={"enum": list(FRAMEWORKS)})
]
