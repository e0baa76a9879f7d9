"""Times of the pods of an allocation, noted in its ConfigMap: a deleted pod takes its own along."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from portal.compute.adapters.engines.kubernetes.manifests import PODS
from portal.compute.engines import Usage

Document = Mapping[str, Any]
# Annotation: from when until when each pod has held its node, in seconds since 1970.
TIMES: Final = "slipway/pod-times"


def noted_times(anchor: Document) -> dict[str, list[float | None]]:
    """Return the start and the end of each pod that has started, None for an end to come."""
    text = (anchor["metadata"].get("annotations") or {}).get(TIMES)
    times: dict[str, list[float | None]] = json.loads(text) if text else {}
    return times


def times_of(anchor: Document, pods: Sequence[Document], *, now: float) -> str:
    """Return the annotation that follows from what is noted, and from the pods that are there.

    A pod whose end nobody saw has ended by the time at which it is gone.
    """
    times = noted_times(anchor)
    present = {pod["metadata"]["name"]: pod for pod in pods}
    for name, pod in present.items():
        started_at = _timestamp(pod["status"].get("startTime"))
        if started_at is not None:
            times[name] = [started_at, _finish(pod)]
    for name, (started_at, finished_at) in times.items():
        if name not in present and finished_at is None:
            times[name] = [started_at, now]
    return json.dumps(times, sort_keys=True) if times else ""


def usage_of(anchor: Document) -> Usage | None:
    """Return the usage of an ended allocation, None while the end of a pod is not known."""
    times = noted_times(anchor)
    seconds = 0.0
    for started_at, finished_at in times.values():
        if started_at is None or finished_at is None:
            return None
        seconds += max(0.0, finished_at - started_at)
    machines = len(times)
    if not machines:
        return Usage(0, 0, 0)
    totals: dict[str, int] = {}
    for container in json.loads(anchor["data"][PODS])[0]["spec"]["containers"]:
        for name, quantity in container["resources"]["requests"].items():
            totals[name] = totals.get(name, 0) + int(quantity.removesuffix("m"))
    shown = {
        "pods": str(machines),
        **{name: str(count * machines) for name, count in totals.items()},
        "cpu": f"{totals['cpu'] * machines}m",
        "memory": f"{totals['memory'] * machines >> 20}Mi",
    }
    return Usage(
        elapsed_s=round(seconds / machines),
        machines=machines,
        cpu_s=round(seconds * totals["cpu"] / 1000),
        resources=",".join(f"{name}={quantity}" for name, quantity in shown.items()),
    )


def _finish(pod: Document) -> float | None:
    statuses = pod["status"].get("containerStatuses") or ()
    ends = [(status["state"].get("terminated") or {}).get("finishedAt") for status in statuses]
    if not ends or not all(ends):
        return None
    return max(_timestamp(text) or 0.0 for text in ends)


def _timestamp(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None
