"""Paths of captured predictions: raw files of gateways, and flat files with feature columns."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.conf import settings

from portal.endpoints.models import Endpoint
from portal.monitoring.models import CapturedHour

_HOUR = re.compile(r"\Ahour=(\d{4}-\d{2}-\d{2}T\d{2})\Z")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
HOUR = timedelta(hours=1)


def raw_root() -> Path:
    """Return the folder where gateways of this machine write Parquet."""
    return Path(settings.DATA_DIR) / "predictions"


def raw_folder(endpoint_id: str) -> Path:
    """Return the folder of the captured predictions of an endpoint."""
    return raw_root() / f"endpoint={endpoint_id}"


def hour_name(hour: datetime) -> str:
    """Return the name of an hour's folder."""
    return f"hour={hour:%Y-%m-%dT%H}"


def raw_hour(endpoint_id: str, hour: datetime) -> Path:
    """Return the folder of the raw files of an hour."""
    return raw_folder(endpoint_id) / hour_name(hour)


def flat_hour(endpoint_id: str, hour: datetime) -> Path:
    """Return the folder of the flat files of an hour."""
    return Path(_flat_hour(flat_root(), endpoint_id, hour))


def flat_root() -> str:
    """Return the folder of the flat files of this machine."""
    return str(Path(settings.DATA_DIR) / "monitoring")


def _flat_hour(root: str, endpoint_id: str, hour: datetime) -> str:
    return f"{root}/endpoint={endpoint_id}/{hour_name(hour)}"


def raw_hours(endpoint_id: str) -> Iterator[tuple[datetime, list[str]]]:
    """Yield the hours of an endpoint that have raw files, oldest first, with those files."""
    folder = raw_folder(endpoint_id)
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        match = _HOUR.match(path.name)
        if match is None:
            continue
        files = sorted(
            item.name for item in path.glob("*.parquet") if not item.name.startswith(".")
        )
        if files:
            yield datetime.strptime(match[1], "%Y-%m-%dT%H").replace(tzinfo=UTC), files


def raw_files_of(endpoint_id: str, ids: Iterable[str]) -> list[str]:
    """Return the files with the bodies of predictions, which are answered soon after their id."""
    begun = {hour for hour in map(hour_of_prediction, ids) if hour is not None}
    hours = sorted({hour + step * HOUR for hour in begun for step in (0, 1)})
    files = [file for hour in hours for file in raw_hour(endpoint_id, hour).glob("*.parquet")]
    return [str(file) for file in sorted(files) if not file.name.startswith(".")]


def captured_endpoints() -> set[str]:
    """Return the ids of endpoints with captured predictions."""
    return {path.name.removeprefix("endpoint=") for path in raw_root().glob("endpoint=*")}


def parts_of(hours: Iterable[CapturedHour]) -> list[str]:
    """Return the paths of the flat files of hours."""
    root = flat_root()
    return [
        f"{_flat_hour(root, hour.endpoint_id, hour.hour)}/{name}"
        for hour in hours
        for name in hour.parts
    ]


def parts_between(endpoint: Endpoint, since: datetime, until: datetime) -> list[str]:
    """Return the flat files that may hold predictions of a time range, newest first."""
    hours = CapturedHour.objects.filter(
        endpoint=endpoint, hour__gt=since - HOUR, hour__lt=until
    ).order_by("-hour")
    return parts_of(hours.only("endpoint", "hour", "parts"))


def hour_of_prediction(prediction_id: str) -> datetime | None:
    """Return the hour in which the id of a prediction was created."""
    stamp = 0
    for character in prediction_id.removeprefix("prd_")[:10]:
        place = _CROCKFORD.find(character)
        if place < 0:
            return None
        stamp = stamp * 32 + place
    try:
        timestamp = datetime.fromtimestamp(stamp / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return timestamp.replace(minute=0, second=0, microsecond=0)
