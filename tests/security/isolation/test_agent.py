"""What the agent, which may be root, does with folders and sockets that user code owns."""

import hashlib
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.schemas.agent import StoredCheckpoint, TaskReport
from tests.checkpoints import make_packed
from tests.security.isolation.arena import CANARY, SMOKE, Arena, arena_at
from tests.security.isolation.attacks import NAMESPACES, ROOTLESS, USERS
from tests.workers.fake_portal import Key
from tests.workers.machines import eventually

STEP = 7
# Links, a pipe and a deep tree, wherever the agent reads, copies, gives away or deletes.
PLANT = """
import os, sys
places = sys.argv[1:]
kept = os.environ["SLIPWAY_PERSISTENT_DIR"]
folders = [os.getcwd(), os.environ["HOME"], os.environ["TMPDIR"], os.environ["SLIPWAY_CACHE"], kept]
for folder in folders:
    for number, place in enumerate(places):
        os.symlink(place, f"{folder}/link-{number}")
    os.mkfifo(f"{folder}/pipe")
if not os.path.isdir(f"{kept}/checkpoints"):
    os.mkdir(f"{kept}/checkpoints")
for step, place in enumerate(places):
    os.symlink(os.path.dirname(place), f"{kept}/checkpoints/step-{step + 20:010d}")
    folder = f"{kept}/checkpoints/step-{step + 40:010d}"
    os.mkdir(folder)
    os.symlink(place, f"{folder}/manifest.json")
    os.mkfifo(f"{folder}/weights.bin")
print("planted", flush=True)
"""
REPLACE = """
import os, sys
kept = os.environ["SLIPWAY_PERSISTENT_DIR"]
os.symlink(sys.argv[1], f"{kept}/checkpoints")
"""
DEEP = """
import os
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
open("last", "w").close()
os.chdir(os.environ["HOME"])
os.makedirs("closed/inner")
os.chmod("closed", 0)
"""
READ = """
import os, pathlib
kept = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"])
for path in sorted(kept.glob("checkpoints/step-*7/*")):
    print(path.name, len(path.read_bytes()))
    path.unlink()
print("read all", flush=True)
"""
FLOOD = """
import socket, sys
bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
bell.connect(sys.argv[1])
while True:
    try:
        bell.send(b"!")
    except ConnectionError:
        break
"""


@pytest.fixture(
    scope="module",
    params=[
        level if level == SMOKE else pytest.param(level, marks=pytest.mark.slow)
        for level in (NAMESPACES, ROOTLESS, USERS)
    ],
)
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    made = arena_at(request.param)
    yield made
    made.close()


def run(arena: Arena, script: str, *arguments: str, key: str, **changes: object) -> Key:
    """Run a script of `beta` to its end, with success."""
    task, end = end_of_run(arena, script, *arguments, key=key, **changes)
    assert end.reason == "completed", (end, arena.portal.state.log_of(task))
    return task


def end_of_run(
    arena: Arena, script: str, *arguments: str, key: str, **changes: object
) -> tuple[Key, TaskReport]:
    """Run a script of `beta`, and return its end."""
    task = arena.want(
        "beta", {"train.py": script}, *arguments, persistent_key=f"beta/{key}", **changes
    )
    return task, eventually(lambda: arena.portal.state.end_of(task), within_s=60)


def file_states(arena: Arena) -> list[tuple[int, int, int, str]]:
    """Owner, rights and content of the installation's files and folders."""
    top = arena.machine.folder / "installation"
    states = []
    for path in (top, *sorted(top.rglob("*"))):
        status = path.lstat()
        text = path.read_text() if stat.S_ISREG(status.st_mode) else ""
        states.append((status.st_uid, status.st_gid, status.st_mode, text))
    return states


def stored(arena: Arena, task: str) -> StoredCheckpoint:
    """Put a checkpoint into the portal's store for a task that is started next."""
    packed = make_packed(STEP)
    arena.portal.state.checkpoints[task, STEP] = packed
    digest = hashlib.sha256(packed).hexdigest()
    return StoredCheckpoint(step=STEP, size_bytes=len(packed), digest=digest)


def next_task(arena: Arena) -> str:
    return f"task-{arena.started + 1}"


@pytest.mark.thorough
def test_planted_links_lead_the_agent_nowhere(arena: Arena) -> None:
    before = file_states(arena)
    first = run(arena, PLANT, *arena.installation, key="links", copy_limit_bytes=1 << 20)
    checkpoint = stored(arena, next_task(arena))
    second = run(arena, READ, key="links", checkpoint=checkpoint, copy_limit_bytes=1 << 20)
    arena.portal.state.forget(first)
    arena.portal.state.forget(second)
    eventually(lambda: not arena.machine.state(first).path.parent.exists())
    eventually(lambda: not arena.machine.state(second).path.parent.exists())
    assert file_states(arena) == before
    sent = b"".join(arena.portal.state.checkpoints.values())
    assert not CANARY.search(sent.decode("latin-1"))


@pytest.mark.thorough
def test_a_link_for_the_folder_of_checkpoints_leads_nowhere(arena: Arena) -> None:
    before = file_states(arena)
    goal = str(arena.machine.folder / "installation")
    run(arena, REPLACE, goal, key="replaced", copy_limit_bytes=1 << 20)
    checkpoint = stored(arena, next_task(arena))
    task = arena.want(
        "beta", {"train.py": READ}, persistent_key="beta/replaced", checkpoint=checkpoint
    )
    end = eventually(lambda: arena.portal.state.end_of(task), within_s=60)
    assert end.reason == "start_failed"
    assert file_states(arena) == before


def test_a_fetched_checkpoint_belongs_to_the_task(arena: Arena) -> None:
    run(arena, "print('first')", key="resumed")
    checkpoint = stored(arena, next_task(arena))
    task = run(arena, READ, key="resumed", checkpoint=checkpoint)
    assert "read all" in arena.log_until(task, "^(read all)")
    assert "manifest.json" in arena.portal.state.log_of(task)


@pytest.mark.thorough
def test_no_tree_is_too_deep_to_be_removed(arena: Arena) -> None:
    # Where it takes long, the check of its disk limit ends it: such a tree cannot be measured.
    deep, end = end_of_run(arena, DEEP, key="deep")
    assert end.reason in ("completed", "disk_full"), end
    after = run(arena, "print('after')", key="after")
    for task in (deep, after):
        arena.portal.state.forget(task)
    folders = [arena.machine.state(task).path.parent for task in (deep, after)]
    eventually(lambda: not any(folder.exists() for folder in folders), what="both to be gone")


def test_a_flood_of_notifications_stops_nothing(arena: Arena) -> None:
    """Containers and, without namespaces, tasks of the agent's own user can send them."""
    path = arena.machine.data_dir / "shared" / "bell"
    floods = [subprocess.Popen([sys.executable, "-c", FLOOD, str(path)]) for _ in range(2)]
    try:
        run(arena, "print('fine')", key="flooded")
        arena.machine.connected_again()
    finally:
        for flood in floods:
            flood.kill()
            flood.wait()


def test_only_those_who_must_can_notify_the_agent(arena: Arena) -> None:
    bell = arena.machine.data_dir / "shared" / "bell"
    assert stat.S_IMODE(bell.stat().st_mode) == 0o600


def test_leftovers_in_shared_memory_go_with_the_last_task(arena: Arena) -> None:
    if arena.level != USERS:
        pytest.skip("only here tasks share the memory of the machine")
    neighbour = arena.neighbour("leave", warm=False)
    eventually(lambda: not Path("/dev/shm", neighbour.mark).exists())  # noqa: S108
    eventually(lambda: neighbour.sysv not in system_v_keys())


def system_v_keys() -> set[int]:
    """The keys of all System V memory of this machine."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {int(line.split()[0]) for line in lines}
