"""Demo step: monitoring. Shifted traffic, labels, and the alerts about drift and quality."""

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
_ALERTS_WITHIN_S: Final = 240.0
_FIRING: Final = "firing"


def shift_traffic(client: Client, endpoint: EndpointOut, rows: Sequence[Sequence[float]]) -> None:
    """Send rotated digits and their labels, then wait for the alerts of both kinds."""
    monitoring = client.endpoints.monitoring
    monitoring.change(ENDPOINT, project=PROJECT, window_rows=_WINDOW_ROWS, window_at_least_s=0)
    serving = max(revision.number for revision in endpoint.revisions if revision.weight)
    labels = _send(Key(client, "a camera"), endpoint, rows[: _WINDOWS * _WINDOW_ROWS])
    monitoring.label(ENDPOINT, labels, project=PROJECT)
    show("sent", f"{len(labels)} rotated digits, and their labels")

    def firing() -> MonitoringOut | None:
        report = monitoring.show(ENDPOINT, project=PROJECT, revision=serving)
        kinds = {
            alert.kind
            for alert in report.alerts
            if (alert.revision, alert.state) == (serving, _FIRING)
        }
        return report if {"drift", "quality"} <= kinds else None

    report = wait_for(firing, "alerts about drift and quality", within_s=_ALERTS_WITHIN_S)
    for alert in report.alerts:
        if (alert.revision, alert.state) == (serving, _FIRING):
            show("alarm", alert.reason)
    quality = report.quality
    show(
        "measured",
        f"accuracy {quality.figures['accuracy']:.2f} of {quality.labelled} labelled digits; "
        f"{quality.estimate or 0:.2f} was estimated",
    )
    show("monitoring", f"{client.endpoints.page(ENDPOINT, project=PROJECT)}/monitoring")


def _send(key: Key, endpoint: EndpointOut, rows: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Send the digits window by window. Returns their labels, by client request ids."""
    labels = []
    with key.endpoint(endpoint) as predictor:
        for start in range(0, len(rows), _WINDOW_ROWS):
            window, request_id = rows[start : start + _WINDOW_ROWS], f"camera-{time.time_ns()}"
            predictor.predict([rotated(row) for row in window], own_id=request_id)
            labels += [
                {"own_id": request_id, "row": at, "value": int(row[-1])}
                for at, row in enumerate(window)
            ]
    return labels
