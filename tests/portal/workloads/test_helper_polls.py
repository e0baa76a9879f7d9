"""The helper of a person waits at a real portal until there is work for that person."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.live import ROOT, LivePortal

pytestmark = pytest.mark.postgres
_PUT = """
from portal.accounts.models import User
from portal.compute.models import Pool
from portal.compute.services.pool_helpers import put_request
from slipway.schemas.pool_helpers import HelperOperation
put_request(
    pool_id=Pool.objects.get(name="login").pk,
    user_id=User.objects.get(email="alice@example.org").pk,
    operation=HelperOperation.CANCEL, subject="1", arguments={"handles": ["1"]},
)
"""


@pytest.fixture(scope="module")
def url(portal: LivePortal) -> str:
    """The address of alice's helper in a pool."""
    answer = httpx.post(
        f"{portal.url}/api/v1/pools",
        json={"name": "login", "engine": "slurm", "settings": {"helper": True}},
        headers={"Authorization": f"Bearer {portal.tokens['root']}"},
        timeout=40,
    )
    assert answer.status_code == 201, answer.text
    return f"{portal.url}/api/v1/pools/login/helper"


def _poll(url: str, token: str, seen: int, wait_s: float) -> httpx.Response:
    return httpx.get(
        url,
        params={"seen": seen, "wait_s": wait_s},
        headers={"Authorization": f"Bearer {token}"},
        timeout=40,
    )


@pytest.mark.thorough
def test_a_helper_hears_of_its_own_work_and_not_of_that_of_others(
    portal: LivePortal, url: str
) -> None:
    version = _poll(url, portal.tokens["alice"], 0, 0).json()["version"]
    with ThreadPoolExecutor() as threads:
        began = time.monotonic()
        own = threads.submit(_poll, url, portal.tokens["alice"], version, 30)
        other = threads.submit(_poll, url, portal.tokens["bob"], 0, 30)
        subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "shell", "--no-imports", "-c", _PUT],
            cwd=ROOT,
            env=portal.environment,
            check=True,
        )
        answer = own.result().json()
        assert time.monotonic() - began < 29
        assert (answer["version"], answer["waiting"]) == (version + 1, 1)
        assert (other.result().json()["version"], time.monotonic() - began > 29) == (0, True)


@pytest.mark.parametrize("token", ["slp_" + "x" * 40, "nonsense"])
def test_strangers_do_not_wait(url: str, token: str) -> None:
    began = time.monotonic()
    assert _poll(url, token, 0, 20).status_code == 401
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("pool", "person", "text"),
    [
        ("login", "nobody", "The token is unknown, expired or revoked."),
        ("plain", "alice", "Pool plain is not reached by helpers of people."),
        ("none", "alice", "There is no such object"),
    ],
)
def test_a_helper_that_can_do_nothing_ends_with_the_reason(
    portal: LivePortal, url: str, pool: str, person: str, text: str
) -> None:
    httpx.post(
        f"{portal.url}/api/v1/pools",
        json={"name": "plain", "engine": "local", "settings": {}},
        headers={"Authorization": f"Bearer {portal.tokens['root']}"},
        timeout=40,
    )
    token = portal.tokens.get(person, "slp_" + "x" * 40)
    done = subprocess.run(
        [sys.executable, "-m", "slipway", "pool", "helper", pool],
        cwd=ROOT,
        env=portal.environment | {"SLIPWAY_URL": portal.url, "SLIPWAY_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert text in done.stderr
