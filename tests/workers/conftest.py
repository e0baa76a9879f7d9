"""A fake portal and machines that talk to it."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.workers.fake_portal import FakePortal
from tests.workers.machines import Machine, Site


@pytest.fixture
def portal() -> Iterator[FakePortal]:
    """A portal; at the end it must not have seen a breach of the contract."""
    fake_portal = FakePortal()
    yield fake_portal
    fake_portal.close()
    assert not fake_portal.state.breaches


@pytest.fixture
def make_machine(portal: FakePortal) -> Iterator[Callable[..., Machine]]:
    """Make nodes of the portal; all are removed afterwards."""
    machines: list[Machine] = []

    def make(*options: str, name: str = "node-1", python: bool = True) -> Machine:
        machines.append(Machine(portal, *options, name=name, python=python))
        return machines[-1]

    yield make
    for machine in machines:
        machine.close()


@pytest.fixture
def machine(make_machine: Callable[..., Machine]) -> Machine:
    """One node of its own for a test that will do things to it; its agent is connected."""
    return make_machine().start().connected()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A portal and a node that the tests of a module share, because they leave it as it was."""
    new_site = Site()
    yield new_site
    new_site.close()
    assert not new_site.portal.state.breaches


@pytest.fixture
def tiny_disk() -> Iterator[Path]:
    """A file system of 1 MiB, for what fills a disk quickly."""
    yield from _mounted("1m")


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 8 MiB, for an agent with little room."""
    yield from _mounted("8m")


def _mounted(size: str) -> Iterator[Path]:
    if os.getuid():
        pytest.skip("a small file system can only be mounted by root")
    folder = Path(tempfile.mkdtemp(prefix="sl-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
    folder.rmdir()
