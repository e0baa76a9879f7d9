"""The attacks of `tests/security/isolation` from inside a container of the back end `docker`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker.arena import ContainerArena
from tests.security.isolation.arena import Neighbour
from tests.security.isolation.test_jobs import check
from tests.security.isolation.test_limits import FILLS, MIB, PROCESSES, SMALL, goes_on
from tests.workers.machines import eventually

pytestmark = pytest.mark.docker
# Most of what a container may have, and held until the task is stopped.
THREADS = """
import threading, time
threading.stack_size(1 << 16)
count = 0
try:
    while count < 3000:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        count += 1
except RuntimeError:
    pass
print("started", count, flush=True)
time.sleep(600)
"""
OWN_GROUPS = """
for line in open("/proc/self/cgroup"):
    print("group", line.strip().rpartition(":")[2], flush=True)
print("<end>", flush=True)
"""


@pytest.fixture(scope="module")
def arena(
    engine_socket: Path, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ContainerArena]:
    nothing = tmp_path_factory.mktemp("requirements") / "nothing.txt"
    nothing.touch()
    made = ContainerArena(engine_socket, base_image, nothing)
    yield made
    made.close()


@pytest.fixture(scope="module")
def neighbours(arena: ContainerArena) -> list[Neighbour]:
    return [arena.neighbour("leave", warm=False), arena.neighbour(warm=False)]


def test_a_job_in_a_container(arena: ContainerArena, neighbours: list[Neighbour]) -> None:
    check(arena.level, arena.attack(neighbours))


def test_a_project_without_a_network_is_refused(arena: ContainerArena) -> None:
    key = arena.want("beta", {"train.py": "print('started')"}, network="platform")
    end = eventually(lambda: arena.portal.state.end_of(key), within_s=60)
    assert end.reason == "start_failed", end
    assert "network rule" in (end.message or "")
    assert "started" not in arena.portal.state.log_of(key)


def test_processes_are_counted_for_each_container(
    arena: ContainerArena, neighbours: list[Neighbour]
) -> None:
    keys = [arena.want("beta", {"train.py": THREADS}) for _ in range(2)]
    assert [arena.log_until(key, r"^started (\d+)") for key in keys] == ["3000", "3000"]
    for key in keys:
        arena.portal.state.forget(key)
    key = arena.want("beta", {"train.py": PROCESSES})
    assert int(arena.log_until(key, r"^started (\d+)")) < 4200
    goes_on(arena, neighbours[-1])


@pytest.mark.parametrize("fill", FILLS)
def test_memory_is_limited(arena: ContainerArena, neighbours: list[Neighbour], fill: str) -> None:
    key = arena.want("beta", {"train.py": FILLS[fill]}, resources=SMALL)
    end = eventually(lambda: arena.portal.state.end_of(key), within_s=60)
    assert end.reason != "completed", end
    assert (end.memory_peak_bytes or 0) < SMALL.memory_bytes + MIB
    goes_on(arena, neighbours[-1])


def test_a_container_sees_no_control_group_of_the_machine(arena: ContainerArena) -> None:
    key = arena.want("beta", {"train.py": OWN_GROUPS})
    arena.log_until(key, "^(<end>)")
    groups = [line for line in arena.portal.state.log_of(key).splitlines() if "group " in line]
    assert set(groups) == {"group /"}
