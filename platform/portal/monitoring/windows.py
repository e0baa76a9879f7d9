"""Drift windows of an endpoint for display: the differences in each, the latest first."""

from dataclasses import dataclass, field
from datetime import datetime

from portal.endpoints.models import Endpoint
from portal.monitoring.models import DriftWindow
from slipway.schemas.monitoring import WindowOut

_MOST = 50
_NAMES = 20


@dataclass(frozen=True)
class Windows:
    """The latest windows of a time range, and the number of earlier ones."""

    shown: list[WindowOut] = field(default_factory=list)
    left_out: int = 0


def windows_of(
    endpoint: Endpoint, revision_id: str | None, since: datetime, until: datetime
) -> Windows:
    """Return the windows of a revision that overlap a time range, at most 50."""
    drift_windows = DriftWindow.objects.filter(
        endpoint=endpoint, revision_id=revision_id, ends_at__gt=since, starts_at__lt=until
    )
    shown = [
        WindowOut(
            starts_at=drift_window.starts_at,
            ends_at=drift_window.ends_at,
            rows=drift_window.rows,
            failed=drift_window.failed,
            features=len(drift_window.features),
            different=len(drift_window.different),
            drifted=len(drift_window.drifted),
            worst=[_feature_name(name) for name in _sorted_by_share(drift_window)[:_NAMES]],
        )
        for drift_window in drift_windows.order_by("-ends_at")[:_MOST]
    ]
    return Windows(shown, drift_windows.count() - len(shown) if len(shown) == _MOST else 0)


def _sorted_by_share(drift_window: DriftWindow) -> list[str]:
    shares = {feature["name"]: feature["share"] for feature in drift_window.features}
    return sorted(drift_window.different, key=lambda name: (-shares.get(name, 0.0), name))


def _feature_name(name: str) -> str:
    return name.partition(".")[2]
