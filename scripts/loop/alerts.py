"""The step of monitoring: shifted traffic and the alarm about it, labels and measured quality."""

import time
from collections.abc import Sequence
from typing import Any, Final

from scripts.loop.data import PROJECT, rotated
from scripts.loop.serving import ENDPOINT, Key
from scripts.loop.steps import show, wait_for
from slipway import Client
from slipway.schemas.endpoints import EndpointOut
from slipway.schemas.monitoring import MonitoringOut

_WINDOW_ROWS: Final = 200
# The first window may contain rows of earlier traffic, and two consecutive ones have to differ.
_WINDOWS: Final = 3
_ALARM_WITHIN_S: Final = 240.0
_FIRING: Final = "firing"


def shift_traffic(client: Client, found: EndpointOut, rows: Sequence[Sequence[float]]) -> None:
    """Send digits that lie on their side, say what they were, and wait for both alarms."""
    monitoring = client.endpoints.monitoring
    monitoring.change(ENDPOINT, project=PROJECT, window_rows=_WINDOW_ROWS, window_at_least_s=0)
    serving = max(one.number for one in found.revisions if one.weight)
    labels = _send(Key(client, "a camera"), found, rows[: _WINDOWS * _WINDOW_ROWS])
    monitoring.label(ENDPOINT, labels, project=PROJECT)
    show("sent", f"{len(labels)} rotated digits, and their labels")

    def look() -> MonitoringOut | None:
        shown = monitoring.show(ENDPOINT, project=PROJECT, revision=serving)
        kinds = {
            one.kind for one in shown.alerts if (one.revision, one.state) == (serving, _FIRING)
        }
        return shown if {"drift", "quality"} <= kinds else None

    shown = wait_for(look, "alerts about drift and quality", within_s=_ALARM_WITHIN_S)
    for alert in shown.alerts:
        if (alert.revision, alert.state) == (serving, _FIRING):
            show("alarm", alert.reason)
    quality = shown.quality
    show(
        "measured",
        f"accuracy {quality.figures['accuracy']:.2f} of {quality.labelled} labelled digits; "
        f"{quality.estimate or 0:.2f} was estimated",
    )
    show("look", f"{client.endpoints.page(ENDPOINT, project=PROJECT)}/monitoring")


def _send(key: Key, found: EndpointOut, rows: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Ask about the digits, a window at a time; returns their labels by ids of the camera's own."""
    labels = []
    with key.ask(found) as endpoint:
        for start in range(0, len(rows), _WINDOW_ROWS):
            some, mine = rows[start : start + _WINDOW_ROWS], f"camera-{time.time_ns()}"
            endpoint.predict([rotated(row) for row in some], own_id=mine)
            labels += [
                {"own_id": mine, "row": at, "value": int(row[-1])} for at, row in enumerate(some)
            ]
    return labels
