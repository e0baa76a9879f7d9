"""A portal that is measured from outside: its own installation, its own uvicorn process."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.processes import ROOT, Installation, installation

_START_S = 60.0
# Runs in the installation: makes the tables, a person, a project and a token.
_SEED = """
import django, json
django.setup()
from django.core.management import call_command
from portal.config.backends.sqlite.files import allow_creation
allow_creation()
call_command("migrate", verbosity=0)
from tests.personas import make_token, make_user
from portal.accounts.services.projects import create_project
user = make_user("alice")
create_project(by=user, name="Vision")
print(json.dumps(make_token(user)))
"""


@dataclass(frozen=True)
class MeasuredPortal:
    """A running portal with one person, a project `vision` and a token with every scope."""

    url: str
    token: str
    pid: int
    data_dir: Path

    @property
    def headers(self) -> dict[str, str]:
        """What an upload of that person carries."""
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/octet-stream"}

    def client(self) -> httpx.Client:
        """A client of the REST API that speaks for that person."""
        return httpx.Client(
            base_url=f"{self.url}/api/v1/", headers=self.headers, timeout=120, trust_env=False
        )

    def forget_peak(self) -> None:
        """Begin measuring the peak afresh."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_rss_bytes(self) -> int:
        """Return the most memory the process has held since `forget_peak`."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the kernel tells no peak")


def make_seed(place: Installation) -> str:
    """Make tables, Alice and her project; returns her token."""
    place.environ["DJANGO_SETTINGS_MODULE"] = "portal.config.settings"
    place.environ["PYTHONPATH"] = f"{ROOT / 'platform'}:{ROOT}"
    seeded = subprocess.run(
        [sys.executable, "-c", _SEED], cwd=ROOT, env=place.environ, check=True, capture_output=True
    )
    token: str = json.loads(seeded.stdout)
    return token


@contextmanager
def measured_portal(folder: Path, **settings: str) -> Iterator[MeasuredPortal]:
    """Run a portal for the duration of a block; `settings` are environment variables."""
    with installation(folder) as place:
        place.environ.update(settings)
        token = make_seed(place)
        program = place.start(
            *("-m", "uvicorn", "portal.config.asgi:application", "--host", "127.0.0.1"),
            *("--port", str(place.portal_port), "--no-access-log", "--lifespan", "off"),
        )
        program.wait_for_text("Uvicorn running on", within_s=_START_S)
        url = f"http://127.0.0.1:{place.portal_port}"
        # The first request loads all pages, which takes a busy machine longer than httpx waits.
        first = httpx.get(f"{url}/healthz", trust_env=False, timeout=_START_S)
        assert first.is_success, first.text
        yield MeasuredPortal(url, token, program.pid, place.data_dir)
