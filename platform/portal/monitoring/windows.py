"""Windows of an endpoint, as people see them: what differed in each, the latest first."""

from dataclasses import dataclass, field
from datetime import datetime

from portal.endpoints.models import Endpoint
from portal.monitoring.models import DriftWindow
from slipway.schemas.monitoring import WindowOut

_MOST = 50
_NAMES = 20


@dataclass(frozen=True)
class Windows:
    """The latest windows of a span, and the number of earlier ones."""

    shown: list[WindowOut] = field(default_factory=list)
    left_out: int = 0


def windows_of(
    endpoint: Endpoint, revision_id: str | None, since: datetime, until: datetime
) -> Windows:
    """Return the windows of a revision that a span touches, at most 50."""
    found = DriftWindow.objects.filter(
        endpoint=endpoint, revision_id=revision_id, ends_at__gt=since, starts_at__lt=until
    )
    shown = [
        WindowOut(
            starts_at=one.starts_at,
            ends_at=one.ends_at,
            rows=one.rows,
            failed=one.failed,
            features=len(one.features),
            different=len(one.different),
            drifted=len(one.drifted),
            worst=[_short(name) for name in _by_share(one)[:_NAMES]],
        )
        for one in found.order_by("-ends_at")[:_MOST]
    ]
    return Windows(shown, found.count() - len(shown) if len(shown) == _MOST else 0)


def _by_share(one: DriftWindow) -> list[str]:
    shares = {told["name"]: told["share"] for told in one.features}
    return sorted(one.different, key=lambda name: (-shares.get(name, 0.0), name))


def _short(name: str) -> str:
    return name.partition(".")[2]
