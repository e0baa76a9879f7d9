"""A full disk under the capture log."""

import re
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.workers.gateway.captures import captured
from tests.workers.machines import eventually
from tests.workers.serving import Plane, plane


def _metrics(dataplane: Plane) -> str:
    log = (dataplane.folder / "gateway.log").read_text()
    (url,) = re.findall(r"health on (http://127\.0\.0\.1:\d+)", log)
    token = (dataplane.data_dir / "health-token").read_text().strip()
    return httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"}).text


@pytest.mark.thorough
def test_a_full_disk_stops_no_prediction_and_the_drops_are_counted(tiny_disk: Path) -> None:
    with plane() as dataplane:
        replica = dataplane.replica()
        dataplane.data_dir.mkdir()
        (dataplane.data_dir / "capture").symlink_to(tiny_disk)
        (tiny_disk / "ballast").write_bytes(bytes(1_000_000))
        with (tiny_disk / "rest").open("wb", buffering=0) as rest, suppress(OSError):
            while rest.write(bytes(4096)):
                pass
        dataplane.start_gateway("--health-port", "0")
        dataplane.serve(replica, capture="strict")
        for _ in range(20):
            assert dataplane.predict([[1, 2, 3, 4]]).status == 200

        def dropped() -> int:
            return max((report.capture.dropped for report in dataplane.portal.reports), default=0)

        eventually(lambda: dropped() >= 20, what="drops in the report")
        report = dataplane.portal.reports[-1]
        assert "No space" in report.capture.reason
        (counters,) = report.endpoints[0].revisions
        assert (counters.uncaptured, counters.captured) == (counters.answered, 0)
        metrics = _metrics(dataplane)
        labels = 'endpoint="digits",model_version="1",outcome="uncaptured",revision="rev-1"'
        assert f"slipway_gateway_captures_total{{{labels}}} 20.0" in metrics
        assert "slipway_gateway_capture_fails 1.0" in metrics
        (tiny_disk / "ballast").unlink()
        (tiny_disk / "rest").unlink()

        def is_captured_again() -> bool:
            name = dataplane.predict([[1, 2, 3, 4]]).headers["x-slipway-prediction-id"]
            return bool(eventually(lambda: captured(dataplane) & {name} or None, within_s=5))

        eventually(is_captured_again, what="capture goes on")
