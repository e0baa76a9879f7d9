"""A node towards its portal: joining, what it is, what it tells, and what it makes of refusals."""

import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from slipway.schemas.agent import TaskKey
from slipway.schemas.workloads import Resources
from tests.workers.fake_portal import JOIN_TOKEN, FakePortal, make_spec
from tests.workers.machines import Machine, eventually
from workers.node_agent import host_info
from workers.node_agent.reporter import report_of
from workers.node_agent.settings import read_settings


@pytest.mark.thorough
def test_a_node_joins_once_and_keeps_its_token_to_itself(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    machine = make_machine()
    machine.token.write_text(JOIN_TOKEN)
    machine.start().connected()
    identity = machine.data_dir / "node.json"
    assert stat.S_IMODE(identity.stat().st_mode) == 0o600
    assert stat.S_IMODE(machine.data_dir.stat().st_mode) == 0o700
    machine.kill()
    machine.token.unlink()
    machine.start().connected()
    assert len(portal.state.nodes) == 1
    assert "sln_" not in machine.log.read_text()


def test_a_used_token_is_refused_with_the_next_step(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    portal.state.join_tokens.clear()
    machine = make_machine().start()
    assert machine.agent is not None
    assert machine.agent.wait(20) == 1
    assert "Create a new join token" in machine.log.read_text()


@pytest.mark.thorough
def test_a_portal_that_comes_later_is_waited_for(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    portal.stop()
    machine = make_machine().start()
    eventually(lambda: "does not respond yet" in machine.log.read_text())
    portal.start()
    machine.connected()


def test_a_heartbeat_says_what_the_machine_is(portal: FakePortal, machine: Machine) -> None:
    heartbeat = portal.state.heartbeats[-1]
    capacity = heartbeat.facts.capacity
    assert 0 < capacity.cpu_millis <= (os.cpu_count() or 1) * 1000
    assert 0 < capacity.memory_bytes <= host_info.memory_bytes()
    assert 0 < heartbeat.memory_used_bytes < capacity.memory_bytes
    assert heartbeat.facts.backends == ["process"]
    assert heartbeat.facts.address == "127.0.0.1"
    assert heartbeat.running == []


@pytest.mark.thorough
def test_a_heartbeat_names_what_runs(portal: FakePortal, machine: Machine) -> None:
    key = portal.state.run("t1", "import time; time.sleep(600)")
    eventually(lambda: portal.state.heartbeats[-1].running)
    assert portal.state.heartbeats[-1].running == [TaskKey(task_id="t1", epoch=1)]
    portal.state.stop(key)
    eventually(lambda: not portal.state.heartbeats[-1].running)


def test_quotas_of_control_groups_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = host_info.cpu_millis(), host_info.memory_bytes()
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text(f"{64 << 20}\n")
    monkeypatch.setattr(host_info, "_CGROUPS", tmp_path)
    monkeypatch.setattr(host_info, "own_paths", lambda: {"": "/"})
    assert host_info.cpu_millis() == 500 < whole[0]
    assert host_info.memory_bytes() == 64 << 20 < whole[1]


@pytest.mark.thorough
def test_more_gpus_than_there_are_is_refused(portal: FakePortal, machine: Machine) -> None:
    resources = Resources(cpu_millis=1000, memory_bytes=1 << 30, gpus=9)
    key = portal.state.want("t1", make_spec("true", resources=resources))
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "start_failed"
    assert "needs 9 GPUs" in end.message


@pytest.mark.thorough
def test_task_ids_that_are_no_folders_are_refused(portal: FakePortal, machine: Machine) -> None:
    names = ("../escape", "a/b", "", ".hidden")
    keys = {name: portal.state.want(name, make_spec("true")) for name in names}
    for name, key in keys.items():
        end = eventually(partial(portal.state.end_of, key), what=f"an end of {name!r}")
        assert end.reason == "start_failed", name


@pytest.mark.thorough
def test_persistent_keys_that_are_no_folders_are_refused(
    portal: FakePortal, machine: Machine
) -> None:
    names = ("../escape", "a/../b", "a/b/c", "/a", "", "x" * 300, ".hidden")
    keys = {
        name: portal.state.want(f"t{at}", make_spec("true", persistent_key=name))
        for at, name in enumerate(names)
    }
    for name, key in keys.items():
        end = eventually(partial(portal.state.end_of, key), what=f"an end of {name!r}")
        assert end.reason == "start_failed", name


@pytest.mark.thorough
def test_a_back_end_the_node_does_not_have_is_refused(portal: FakePortal, machine: Machine) -> None:
    key = portal.state.want("t1", make_spec("true", backend="docker"))
    end = eventually(lambda: portal.state.end_of(key))
    assert "no back end 'docker'" in end.message


@pytest.mark.thorough
def test_one_refused_report_does_not_hold_up_the_others(
    portal: FakePortal, machine: Machine
) -> None:
    portal.state.refused_tasks.add("bad")
    portal.state.run("bad", "print()")
    good = portal.state.run("good", "print()")
    assert eventually(lambda: portal.state.end_of(good)).reason == "completed"


@pytest.mark.thorough
def test_a_tasks_environment_may_be_given_by_the_operator(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    machine = make_machine("--pass-env", "HTTPS_PROXY")
    machine.environment = {"HTTPS_PROXY": "http://proxy.example:3128", "OTHER": "no"}
    machine.start().connected()
    script = "import os; print(os.environ['HTTPS_PROXY'], 'OTHER' in os.environ)"
    key = portal.state.run("t1", script)
    end = eventually(lambda: portal.state.end_of(key))
    assert end.log_tail == "http://proxy.example:3128 False\n"


@pytest.mark.thorough
def test_a_long_path_still_has_room_for_sockets(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    machine = make_machine()
    machine.data_dir = machine.folder / ("long" * 20) / ("deep" * 20) / "node"
    machine.data_dir.parent.mkdir(parents=True)
    machine.start().connected()
    script = (
        "import json, os, socket\n"
        "door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "door.sendto(b'{\"step\": 1}', os.environ['SLIPWAY_TASK_SOCKET'])\n"
    )
    key = portal.state.run("t1", script)
    assert eventually(lambda: portal.state.end_of(key)).reason == "completed"
    assert "progress" in portal.state.kinds(key)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"kind": "ended", "reason": "no such reason"},
        {"kind": "made up", "message": "a\x00b\u202ec\nd"},
        {"kind": "ended", "message": "x" * 10_000, "log_tail": "y" * 100_000, "ranks": "none"},
        {"kind": "progress", "step": "many", "at_unix_ms": "now"},
        {"kind": "ended", "task_id": "another", "epoch": 99, "sequence": 99},
    ],
)
def test_whatever_a_journal_holds_a_report_can_be_made(event: dict[str, object]) -> None:
    report = report_of(TaskKey(task_id="t1", epoch=1), 7, event)
    assert (report.task_id, report.epoch, report.sequence) == ("t1", 1, 7)
    assert len(report.message) <= 2000
    assert "\0" not in report.message


def test_the_command_line_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    ordinary = ["--url", "http://portal/", "--data-dir", "data"]
    settings = read_settings([*ordinary, "--label", "zone=a", "--label", "disk="])
    assert settings.url == "http://portal"
    assert settings.data_dir.is_absolute()
    assert settings.labels == {"zone": "a", "disk": ""}
    for wrong in (["--label", "nothing"], ["--name", "Not A Name"], ["--backend", "slurm"]):
        with pytest.raises(SystemExit):
            read_settings([*ordinary, *wrong])
    assert "KEY=VALUE" in capsys.readouterr().err
