"""Fixtures of the datasets' tests: a store of their own, and a portal with its worker."""

import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

import slipway
from slipway import dataset_cache
from tests.live import ROOT, LivePortal, portal
from tests.portal.training.lab import client_of

__all__ = ["portal"]

# Runs beside the portal, on its database: what the control worker does with such doorbells.
_WORKER = """
import time
from portal.datasets.version_checks import check_waiting
print("ready", flush=True)
while True:
    check_waiting()
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def worker(portal: LivePortal) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "shell", "--no-imports", "-c", _WORKER],
        cwd=ROOT,
        env=portal.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert any("ready" in line for line in process.stdout)
        yield
        process.kill()
        process.wait()


@pytest.fixture
def alice(
    portal: LivePortal, worker: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[slipway.Client]:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    with client_of(portal, "alice") as client:
        yield client
    for held in dataset_cache._held.values():
        held.close()
    dataset_cache._held.clear()


@pytest.fixture
def project(alice: slipway.Client) -> str:
    return alice.projects.create(f"Project {secrets.token_hex(4)}").slug


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_STORAGE_URL = f"file://{tmp_path / 'blobs'}"
