"""Shells in containers that run or have failed: where they are, and what they cannot reach."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.schemas.workloads import ReasonCode
from tests.integration.docker.arena import ContainerArena
from tests.workers.fake_portal import Key
from tests.workers.machines import eventually
from tests.workers.shells import Shell
from workers.node_agent.relay import is_own_socket

pytestmark = [pytest.mark.docker, pytest.mark.thorough]

_WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
_FAILS = """
import pathlib
pathlib.Path("state.txt").write_text("left behind")
raise ValueError("loss is NaN")
"""
_ABOUT = "echo uid=$(id -u) caps=$(grep CapEff /proc/self/status | cut -f2) rank=$RANK mine=$MINE"


@pytest.fixture(scope="module")
def arena(
    engine_socket: Path, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ContainerArena]:
    nothing = tmp_path_factory.mktemp("requirements") / "nothing.txt"
    nothing.touch()
    made = ContainerArena(engine_socket, base_image, nothing)
    yield made
    made.close()


def _socket(arena: ContainerArena, key: Key) -> Path:
    return arena.machine.data_dir / "tasks" / f"{key[0]}-{key[1]}" / "state" / "shell"


def _shell(arena: ContainerArena, key: Key) -> Shell:
    path = _socket(arena, key)
    eventually(lambda: is_own_socket(path), within_s=60)
    return Shell(path)


def _run(arena: ContainerArena, script: str, **changes: Any) -> Key:
    files = {"train.py": script}
    return arena.want("alpha", files, shells=True, env={"MINE": "yes"}, **changes)


def test_a_shell_is_in_the_container_with_its_user_and_without_rights(
    arena: ContainerArena,
) -> None:
    key = _run(arena, _WAITS)
    arena.log_until(key, "^(ready)")
    shell = _shell(arena, key)
    about = re.search(r"uid=(\d+) caps=(\w+) rank=0 mine=yes", shell.run(_ABOUT))
    assert about is not None
    user = arena.container(key)["Config"]["User"].partition(":")[0]
    assert (about[1], int(about[2], 16)) == (user, 0)
    assert "present" in shell.run("test -e /.dockerenv && echo pres''ent")
    assert "train.py" in shell.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    # The files of the launcher are closed to it, as they are to ranks.
    for name in ("claim.json", "journal.jsonl"):
        assert "refused" in shell.run(f"cat /slipway/state/{name} 2>/dev/null || echo refu''sed")
    assert "refused" in shell.run("touch /slipway/state/x 2>/dev/null || echo refu''sed")
    assert "refused" in shell.run("rm -f /slipway/state/shell 2>/dev/null || echo refu''sed")
    assert "refused" in shell.run("touch /usr/x 2>/dev/null || echo refu''sed")
    shell.type("exit 7\n")
    assert shell.to_end() == {"exit_code": 7, "reason": "exit"}
    again = Shell(_socket(arena, key), name="shl_2")
    arena.portal.state.stop(key)
    assert again.to_end()["reason"] == "task_ended"


def test_a_failed_container_is_kept(arena: ContainerArena) -> None:
    key = _run(arena, _FAILS, keep_failed_s=600.0)
    eventually(lambda: "failed" in arena.portal.state.kinds(key), within_s=60)
    shell = _shell(arena, key)
    assert "left behind" in shell.run("cat state.txt")
    assert "train.py" not in shell.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "loss is NaN" in shell.run("python train.py")
    arena.portal.state.stop(key, ReasonCode.PEER_FAILED)
    end = eventually(lambda: arena.portal.state.end_of(key), within_s=60)
    assert (end.reason, end.exit_code, end.kept_end) == ("exit", 1, "Stopped on request.")
    assert shell.to_end()["reason"] == "task_ended"


def test_a_kept_container_ends_after_its_time(arena: ContainerArena) -> None:
    key = _run(arena, _FAILS, keep_failed_s=1.0)
    end = eventually(lambda: arena.portal.state.end_of(key), within_s=60)
    assert (end.reason, end.kept_end) == ("exit", "Its time is over.")
