"""`slipway tier` and `slipway node`."""

import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from slipway.cli.quantities import cpus_text, memory_text, parse_memory
from tests.live import ROOT, LivePortal
from tests.processes import Program
from tests.slipway.cli.conftest import Cli
from tests.slipway.jobserver import TrainingServer, training_server

TIER: dict[str, Any] = {
    "id": "tier_1",
    "slug": "cpu-small",
    "name": "CPU small",
    "resources": {"cpu_millis": 1500, "memory_bytes": 4 * 1024**3, "gpus": 0},
    "nano_usd_per_hour": 60_000_000,
    "is_active": True,
    "free_tasks": 3,
}
NODE: dict[str, Any] = {
    "id": "node_1",
    "name": "n1",
    "state": "ready",
    "backends": ["process"],
    "capacity": {"cpu_millis": 8000, "memory_bytes": 32 * 1024**3, "gpus": 2},
    "free": {"cpu_millis": 4000, "memory_bytes": 1536 * 1024**2, "gpus": 0},
    "labels": {"zone": "a"},
    "isolation": [
        {
            "backend": "process",
            "level": "shared",
            "features": ["landlock"],
            "meaning": "Tasks run as one user; one project at a time.",
            "detail": "The kernel refuses user namespaces.",
        },
        {"backend": "docker", "level": "containers", "features": [], "meaning": "Boxes."},
    ],
    "disk": {
        "capacity_bytes": 100 * 1024**3,
        "task_bytes": 25 * 1024**3,
        "reserve_bytes": 2 * 1024**3,
        "free_bytes": 40 * 1024**3,
    },
    "tasks": 2,
    "cpu_percent": 49.7,
}
# Stands in for the agent, which is no part of the SDK: tells how it was started.
AGENT = """
import json, os, pathlib, sys
arguments = sys.argv[1:]
file = arguments[arguments.index("--token-file") + 1] if "--token-file" in arguments else None
print(json.dumps(arguments))
if file:
    print(pathlib.Path(file).read_text().strip(), oct(os.stat(file).st_mode & 0o777))
sys.exit(3)
"""


@pytest.fixture
def server() -> Iterator[TrainingServer]:
    with training_server() as job_server:
        job_server.answers = {
            "tiers": {"items": [TIER], "next_cursor": None},
            "tiers/cpu-small": TIER,
            "tiers/cpu-small/prices": [
                {"nano_usd_per_hour": 60_000_000, "effective_from": "2026-11-20T12:00:00Z"}
            ],
            "nodes": {"items": [NODE], "next_cursor": None},
            "nodes/n1": NODE,
            "nodes/n1/cordon": NODE | {"state": "cordoned", "reason": "new disk"},
            "nodes/n1/drain": NODE | {"state": "draining"},
            "nodes/n1/uncordon": NODE,
            "nodes/join-tokens": {
                "join_token": "slj_secret",
                "command": "x",
                "expires_at": "2026-11-20T13:00:00Z",
            },
        }
        yield job_server


@pytest.fixture
def admin(cli: Cli, server: TrainingServer, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("SLIPWAY_URL", server.url)
    monkeypatch.setenv("SLIPWAY_TOKEN", "slp_x")
    return cli


def test_tiers_are_listed_with_what_they_cost(admin: Cli) -> None:
    rows = admin("tier", "list").rows
    assert rows[1] == [*("cpu-small", "CPU small", "1.5", "4 GiB", "0", "-", "$0.06", "3", "yes")]
    assert admin("tier", "list", "-q").out == "cpu-small\n"


def test_a_tier_is_made_priced_and_retired(admin: Cli, server: TrainingServer) -> None:
    made = (
        *("tier", "create", "gpu-1", "--cpus", "0.5", "--memory", "8GiB", "--price", "1.25"),
        *("--gpus", "1", "--gpu-model", "H200", "--label", "zone=a"),
    )
    server.answers["tiers"] = TIER
    assert dict(admin(*made).rows)["Price"] == "$0.06 an hour"
    assert dict(admin("tier", "price", "cpu-small", "0.05").rows)["Slug"] == "cpu-small"
    assert admin("tier", "price", "cpu-small").rows[1][1] == "$0.06"
    assert admin("tier", "edit", "cpu-small", "--retired", "-q").out == "cpu-small\n"
    assert [body for _, _, body in _bodies(server)] == [
        {
            "name": "gpu-1",
            "slug": "gpu-1",
            "resources": {"cpu_millis": 500, "memory_bytes": 8 * 1024**3, "gpus": 1},
            "gpu_model": "H200",
            "labels": {"zone": "a"},
            "nano_usd_per_hour": 1_250_000_000,
        },
        {"nano_usd_per_hour": 50_000_000},
        {"is_active": False},
    ]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--cpus", "two"),
        ("--cpus", "0.0001"),
        ("--memory", "8 apples"),
        ("--price", "-1"),
        ("--price", "cheap"),
        ("--label", "zone"),
    ],
)
def test_a_quantity_that_makes_no_sense_is_refused(
    admin: Cli, server: TrainingServer, option: str, value: str
) -> None:
    given = {"--cpus": "1", "--memory": "1GiB", "--price": "1"} | {option: value}
    ran = admin("tier", "create", "x", *(word for pair in given.items() for word in pair))
    assert ran.code == 2
    assert option in ran.err
    assert server.requests == []


def test_quantities_are_read_and_shown_in_the_same_words() -> None:
    for text in ("8 GiB", "1.5 GiB", "512 MiB"):
        assert memory_text(parse_memory(text)) == text
    assert parse_memory("8G") == parse_memory("8gib") == parse_memory("8192M") == 8 * 1024**3
    assert memory_text(17) == "17 bytes"
    assert cpus_text(2000) == "2"


def test_nodes_are_listed_and_taken_out_of_use(admin: Cli, server: TrainingServer) -> None:
    row = admin("node", "list").rows[1]
    assert row[:4] == ["n1", "ready", "8 CPUs, 32 GiB, 2 GPUs", "4 CPUs, 1.5 GiB"]
    assert row[4:7] == ["process shared, docker containers", "2", "50 %"]
    fields = dict(admin("node", "cordon", "n1", "--reason", "new disk").rows)
    assert (fields["State"], fields["Reason"]) == ("cordoned", "new disk")
    assert dict(admin("node", "drain", "n1").rows)["State"] == "draining"
    assert admin("node", "uncordon", "n1", "-q").out == "n1\n"
    assert [body for _, _, body in _bodies(server)] == [{"reason": "new disk"}, {}, None]
    assert admin("node", "remove", "n1").code == 2, "nobody agreed"
    assert admin("node", "remove", "n1", "--yes", "--json").document == {"removed": "n1"}
    assert server.requests[-1][:2] == ("DELETE", "/api/v1/nodes/n1")


def test_a_node_shows_how_it_keeps_projects_apart(admin: Cli, server: TrainingServer) -> None:
    fields = dict(admin("node", "show", "n1").rows)
    assert fields["Isolation"] == (
        "process: shared (landlock). Tasks run as one user; one project at a time. The kernel "
        "refuses user namespaces., docker: containers. Boxes."
    )
    assert fields["Shared by projects"] == "no"


def test_a_node_shows_what_a_task_may_hold_on_its_disk(admin: Cli, server: TrainingServer) -> None:
    fields = dict(admin("node", "show", "n1").rows)
    assert fields["Disk"] == "100 GiB, 40 GiB free. A task may use 25 GiB, and 2 GiB stay free."


def test_mixing_projects_has_to_be_confirmed(admin: Cli, server: TrainingServer) -> None:
    refused = admin("node", "edit", "n1", "--mix-projects")
    assert refused.code == 2, "nobody agreed"
    assert "Code of one project can read files, memory and secrets" in refused.err
    assert not _bodies(server)
    assert admin("node", "edit", "n1", "--mix-projects", "--yes", "-q").out == "n1\n"
    assert admin("node", "edit", "n1", "--no-mix-projects", "-q").out == "n1\n"
    bodies = [body for _, _, body in _bodies(server)]
    assert bodies == [{"mixes_projects": True}, {"mixes_projects": False}]


def test_a_join_token_is_shown_once(admin: Cli, server: TrainingServer) -> None:
    ran = admin("node", "token", "--node", "n2", "--minutes", "5")
    assert ran.out == "slj_secret\n"
    assert f"slipway node join {server.url} --token -" in ran.err
    assert [body for _, _, body in _bodies(server)] == [{"node": "n2", "expires_in_minutes": 5}]


def join(tmp_path: Path, *arguments: str, agent: str | None, stdin: str = "slj_x\n") -> Any:
    """Join with `agent` as the node agent of this machine, or with the SDK alone."""
    places = [str(ROOT / "platform")]
    if agent is None:
        shutil.copytree(ROOT / "platform" / "slipway", tmp_path / "sdk" / "slipway")
        places = [str(tmp_path / "sdk")]
    else:
        package = tmp_path / "source" / "workers" / "node_agent"
        package.mkdir(parents=True)
        for file in (package / "__init__.py", package.parent / "__init__.py"):
            file.touch()
        (package / "__main__.py").write_text(agent)
        places.insert(0, str(tmp_path / "source"))
    return subprocess.run(
        [sys.executable, "-m", "slipway", "node", "join", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        timeout=60,
    )


def test_joining_becomes_the_agent(tmp_path: Path) -> None:
    done = join(
        tmp_path,
        *("http://portal.test/", "--token", "-", "--name", "n9", "--label", "zone=a"),
        *("--data-dir", "node", "--", "--isolation=none"),
        agent=AGENT,
    )
    data = tmp_path / "node"
    assert done.returncode == 3, done.stderr
    arguments, token = done.stdout.splitlines()
    assert arguments == (
        f'["--url", "http://portal.test", "--data-dir", "{data}", "--token-file", '
        f'"{data}/join-token", "--name", "n9", "--label", "zone=a", "--isolation=none"]'
    )
    assert token == "slj_x 0o600"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_without_the_agent_it_is_said_what_to_install(tmp_path: Path) -> None:
    done = join(tmp_path, "http://portal.test", "--token", "-", agent=None)
    assert done.returncode == 2
    assert "The node agent is not installed here" in done.stderr
    assert "make setup" in done.stderr
    assert "Traceback" not in done.stderr


def join_for_real(portal: LivePortal, folder: Path, name: str, token: str) -> Program:
    """Join the live portal with the agent of this clone, from a folder that is not the clone."""
    words = ["-m", "slipway", "node", "join", portal.url, "--token", "-", "--name", name]
    options = ["--label", "zone=a", "--data-dir", str(folder / name)]
    program = f"exec {sys.executable} {shlex.join([*words, *options])} -- --python {sys.executable}"
    (folder / "token").write_text(token)
    return Program(
        ["sh", "-c", f"cd {folder} && {program} < token"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "platform")},
        output=folder / f"{name}.log",
    )


def test_a_machine_joins_reports_what_it_is_and_leaves(portal: LivePortal, tmp_path: Path) -> None:
    authorization = {"Authorization": f"Bearer {portal.tokens['root']}"}
    with httpx.Client(base_url=f"{portal.url}/api/v1", headers=authorization) as api:
        token = api.post("/nodes/join-tokens", json={}).json()["join_token"]
        agent = join_for_real(portal, tmp_path, "n9", token)
        try:
            agent.wait_for_text("is connected to", within_s=60)
            (node,) = [item for item in api.get("/nodes").json()["items"] if item["name"] == "n9"]
            assert node["state"] == "ready"
            assert node["labels"] == {"zone": "a"}
            assert node["capacity"]["cpu_millis"] > 0
            assert node["capacity"]["memory_bytes"] > 2**28
            assert 0 <= node["cpu_percent"] <= 100
            assert node["memory_used_bytes"] > 0
            assert "process" in node["backends"]
            other = join_for_real(portal, tmp_path, "n10", token)
            assert other.wait(60) == 1
            assert "unknown, already used, expired" in other.text()
            assert "Create a new join token" in other.text()
            assert "Traceback" not in other.text()
            agent.signal(signal.SIGTERM)
            assert agent.wait() == 0
        finally:
            agent.end()


def test_a_join_token_is_never_taken_from_the_command_line(tmp_path: Path) -> None:
    done = join(tmp_path, "http://portal.test", "--token", "slj_x", agent=AGENT)
    assert done.returncode == 2
    assert "can be read by other people" in done.stderr
    assert not (tmp_path / "node").exists()


def _bodies(server: TrainingServer) -> list[tuple[str, str, Any]]:
    return [
        (method, path, body)
        for (method, path, _), body in zip(server.requests, server.received, strict=True)
        if method in ("POST", "PATCH")
    ]
