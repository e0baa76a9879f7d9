"""Uploads and sweeps of the same bytes, many at once and killed at random, lose nothing."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.portal.storage.live import make_seed
from tests.processes import ROOT, installation

pytestmark = pytest.mark.integration

ROLES = ("uploader", "uploader", "sweeper", "sweeper")
_START_DEADLINE_S = 60
_RACE_S = 8.0


class Racer:
    """One process of the race, started again when it is killed."""

    def __init__(self, role: str, seed: int, environ: dict[str, str], folder: Path) -> None:
        self.role, self.seed, self.environ = role, seed, environ
        self.log = folder / f"{role}-{seed}.log"
        self.start()

    def start(self) -> None:
        self.seed += 1000
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.portal.storage.race", self.role, str(self.seed)],
                cwd=ROOT,
                env=self.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_until_working(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"working\n", self.errors()

    def errors(self) -> str:
        """End the process; returns the end of its log if it failed, and nothing otherwise."""
        self.process.communicate(timeout=_START_DEADLINE_S)
        return self.log.read_text()[-3000:] if self.process.returncode else ""


@pytest.mark.thorough
def test_racing_uploads_and_sweeps_lose_no_file(tmp_path: Path) -> None:
    dice = random.Random(7)  # noqa: S311  (a test's dice)
    with installation(tmp_path) as place:
        make_seed(place)
        environ = place.environ
        racers = [Racer(role, seed, environ, tmp_path) for seed, role in enumerate(ROLES)]
        try:
            for racer in racers:
                racer.wait_until_working()
            deadline = time.monotonic() + _RACE_S
            while time.monotonic() < deadline:
                time.sleep(dice.uniform(0.5, 1.5))  # between two blows, at moments nobody chose
                victim = dice.choice(racers)
                victim.kill()
                victim.start()
                victim.wait_until_working()
            faults = [racer.errors() for racer in racers]
        finally:
            for racer in racers:
                racer.process.kill()
                racer.process.wait()

        assert faults == [""] * len(racers)
        freed = sum(racer.log.read_text().count("blobs=1") for racer in racers)
        assert freed > 10
        checked = subprocess.run(
            [sys.executable, "-m", "tests.portal.storage.race", "check"],
            cwd=ROOT,
            env=environ,
            check=True,
            capture_output=True,
        )
    assert int(checked.stdout.splitlines()[-1]) >= 30
