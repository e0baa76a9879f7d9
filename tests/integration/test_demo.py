"""`make demo`, as a newcomer runs it: every step succeeds, and nothing is left running."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT, free_ports


def test_the_demo_trains_on_real_data_and_leaves_nothing_behind(tmp_path: Path) -> None:
    portal, control, redis, gateway = free_ports(4)
    surroundings = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLIPWAY_", "DATABASE_URL", "REDIS_URL"))
    }
    done = subprocess.run(
        [sys.executable, "scripts/demo.py", "--exit"],
        cwd=ROOT,
        env=surroundings
        | {
            "SLIPWAY_DATA_DIR": str(tmp_path / "data"),
            "SLIPWAY_PORTAL_PORT": str(portal),
            "SLIPWAY_CONTROL_HEALTH_PORT": str(control),
            "SLIPWAY_REDIS_PORT": str(redis),
            "SLIPWAY_GATEWAY_PORT": str(gateway),
        },
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All steps succeeded." in done.stdout
    reached = re.search(r"accuracy on 360 unseen digits: ([0-9.]+)", done.stdout)
    assert reached
    assert float(reached[1]) >= 0.9
    assert f"http://localhost:{portal}/p/digits/datasets/digits/v/1" in done.stdout
    assert "digits:1 → digits by two ranks → run " in done.stdout
    assert f"http://localhost:{portal}/p/digits/jobs/wl_" in done.stdout
    assert f"http://localhost:{portal}/p/digits/models/digits/versions/1" in done.stdout
    assert re.search(r"gate: +evaluation: open\. accuracy on digits:1 is 0\.9", done.stdout)
    assert f"http://localhost:{portal}/p/digits/endpoints/digits" in done.stdout
    answered = re.search(r"predictions: +([0-9]+) of 200 digits right", done.stdout)
    assert answered
    assert int(answered[1]) >= 180
    assert re.search(r"  serving: +\$[0-9.]+, exactly 0\.[0-9]{9} USD", done.stdout)
    cost = re.search(r"  cost: +(\$[0-9.]+)", done.stdout)
    assert cost
    assert re.search(rf"  training: +{re.escape(cost[1])}, exactly 0\.[0-9]{{9}} USD", done.stdout)
    assert not _still_running(tmp_path)


def _still_running(folder: Path) -> list[str]:
    """Return the commands of processes that name the folder in their environment."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
