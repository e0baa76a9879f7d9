"""A node with a neighbour, an installation full of secrets, and an attacker to let loose on it."""

import json
import os
import re
import secrets
import shutil
import site
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.security.isolation.attacks import (
    CONTAINERS,
    LEVELS,
    NAMES,
    NAMESPACES,
    ROOTLESS,
    SHARED,
    USERS,
)
from tests.security.isolation.hostile.findings import LIBC
from tests.workers.fake_portal import FakePortal, Key, make_spec
from tests.workers.machines import Machine, eventually
from workers.launcher.atomic_files import read_json
from workers.launcher.processes import children, start_ticks

HERE = Path(__file__).parent
PACKAGE = "tests/security/isolation/hostile"
VICTIM = (HERE / "hostile" / "victim.py").read_text()
CANARY = re.compile(r"canary-[a-z]+-[0-9a-f]{32}")
# An ordinary user without a name, whom no service of the machine knows.
ORDINARY_UID = 654_321
# The level that `make test` shows, as this machine gives it.
SMOKE = NAMESPACES if os.getuid() == 0 else ROOTLESS
KINDS = ("file", "shm", "sysv", "queue", "key", "socket", "http", "memory", "token")
_ATTACK_WITHIN_S = 300.0


def hostile_files() -> dict[str, str]:
    """Return the attacker as files of a package, which user code brings along."""
    steps = [PACKAGE, *(str(path) for path in Path(PACKAGE).parents if path.name)]
    files = {f"{step}/__init__.py": "" for step in steps}
    return files | {
        f"{PACKAGE}/{path.name}": path.read_text() for path in (HERE / "hostile").glob("*.py")
    }


def common_folders() -> dict[str, list[int]]:
    """Folders of the machine that its programs share: device and number, to know them inside."""
    statuses = {folder: Path(folder).stat() for folder in ("/tmp", "/dev/shm")}  # noqa: S108
    return {folder: [status.st_dev, status.st_ino] for folder, status in statuses.items()}


def machine_folders() -> dict[str, list[int]]:
    """Folders of the machine that no image of a container holds, known in the same way."""
    statuses = {
        folder: Path(folder).stat()
        for folder in ("/root", "/var/lib", "/var/log", "/home", "/srv")
        if Path(folder).exists()
    }
    return {folder: [status.st_dev, status.st_ino] for folder, status in statuses.items()}


def canary(kind: str) -> str:
    """Return a secret that nothing but its owner should ever print."""
    return f"canary-{kind}-{secrets.token_hex(16)}"


@dataclass(frozen=True)
class Neighbour:
    """A task of another project, and where it keeps its secrets."""

    key: Key
    mark: str
    sysv: int
    places: dict[str, Any]


class Arena:
    """A machine at one level of isolation. The project `alpha` is attacked by `beta`."""

    def __init__(
        self,
        level: str,
        *options: str,
        environment: dict[str, str] | None = None,
        data_dir: Path | None = None,
        name: str = "node-1",
    ) -> None:
        self.level = level
        self.portal = FakePortal()
        isolation = {ROOTLESS: LEVELS[0], CONTAINERS: "auto"}.get(level, level)
        self.machine = Machine(self.portal, "--isolation", isolation, *options, name=name)
        self.machine.environment |= environment or {}
        self.machine.data_dir = data_dir or self.machine.data_dir
        self.machine.options += ("--hide", str(self.machine.folder))
        self.installation = self._fill_installation()
        if level == ROOTLESS and os.getuid() == 0:
            self.machine.user = ORDINARY_UID
            self._give(self.machine.folder)
        elif level == USERS:
            # As an administrator has to: others may pass through to what is theirs.
            self.machine.folder.chmod(0o711)
        self.machine.start().connected()
        self.started = 0
        self._neighbours: list[Neighbour] = []

    def _fill_installation(self) -> list[str]:
        """Write what the platform keeps beside the node, with the rights that it has there."""
        folder = self.machine.folder / "installation"
        names = ("keys/session.key", "keys/secrets.key", "slipway.sqlite3", "mail/1.eml", "env")
        for name in names:
            path = folder / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(f"{canary('installation')}\n")
            path.chmod(0o600)
        return [str(folder / name) for name in names]

    def _give(self, folder: Path) -> None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, ORDINARY_UID, ORDINARY_UID)

    def want(self, project: str, files: dict[str, str], *arguments: str, **changes: Any) -> Key:
        """Start a task of a project that runs `train.py` of these files."""
        self.started += 1
        name = f"task-{self.started}"
        fields: dict[str, Any] = {
            "persistent_key": f"{project}/run-{self.started}",
            "personal_key": f"{project}/person",
            "snapshot": self.portal.state.add_snapshot(files),
            **changes,
        }
        argv = fields.pop("argv", ("python", "train.py", *arguments))
        return self.portal.state.want(name, make_spec(*argv, **fields), node=self.machine.name)

    def log_until(self, key: Key, pattern: str, *, within_s: float = 60.0) -> str:
        """Wait until the log of a task has a line like that; answers its first group."""

        def look() -> str:
            match = re.search(pattern, self.portal.state.log_of(key), re.MULTILINE)
            end = self.portal.state.end_of(key)
            if match is None and end is not None and "<end>" in self.portal.state.log_of(key):
                raise AssertionError(f"{end}\n{self.portal.state.log_of(key)[-3000:]}")
            return match[1] if match else ""

        return str(eventually(look, within_s=within_s, what=f"{pattern} of {key}"))

    def neighbour(self, ending: str = "stay", *, warm: bool = True) -> Neighbour:
        """Start a task of `alpha` that is full of secrets."""
        mark = f"neighbour-{secrets.token_hex(8)}"
        sysv = secrets.randbelow(1 << 30) + 1
        env = {f"CANARY_{kind.upper()}": canary(kind) for kind in KINDS}
        key = self.want(
            "alpha",
            {"train.py": VICTIM},
            *(mark, str(sysv), ending, canary("argument")),
            env=env,
            warm="torch" if warm else None,
        )
        places = json.loads(self.log_until(key, r"^(?:placed|left) (.*)$"))
        if ending == "leave":
            eventually(lambda: self.portal.state.end_of(key), what=f"the end of {key}")
        self._neighbours.append(Neighbour(key, mark, sysv, places))
        return self._neighbours[-1]

    def targets(self, neighbours: list[Neighbour], own: str) -> dict[str, Any]:
        """All that there is to attack, as if the attacker had been told."""
        data = self.machine.data_dir
        alive = [
            neighbour for neighbour in neighbours if self.portal.state.end_of(neighbour.key) is None
        ]
        own_state = data / "tasks" / f"{own}-1" / "state"
        return {
            **self._files_to_attack(alive),
            "leftovers": [
                f"/dev/shm/{neighbour.mark}"  # noqa: S108
                for neighbour in neighbours
                if neighbour not in alive
            ],
            "processes": [
                {"name": name, "pid": pid, "ticks": start_ticks(pid)}
                for name, pid in self._processes(alive).items()
            ],
            "sockets": [
                *(path for neighbour in alive for path in neighbour.places["sockets"]),
                *map(str, (data / "contact").glob("*/s")),
                str(data / "shared" / "bell"),
            ],
            "abstract": [neighbour.mark for neighbour in alive],
            "ports": [port for neighbour in alive for port in neighbour.places["ports"]],
            "hosts": sorted({host for neighbour in alive for host in neighbour.places["hosts"]}),
            "shm": [neighbour.mark for neighbour in alive],
            "sysv": [neighbour.sysv for neighbour in neighbours],
            "queues": [f"/{neighbour.mark}" for neighbour in neighbours],
            "key": neighbours[0].mark,
            "inodes": [Path(path).stat().st_ino for path in ("/etc/shadow", *self.installation)],
            "own_state": [
                f"{own_state}/{name}"
                for name in ("journal.jsonl", "claim.json", "stop.json", "lease")
            ],
            "common": common_folders(),
            "machine": {},
            "agent_uid": self.machine.user if self.machine.user is not None else os.getuid(),
            "rootless": self.level == ROOTLESS,
        }

    def _files_to_attack(self, alive: list[Neighbour]) -> dict[str, list[str]]:
        data = self.machine.data_dir
        state = [self.machine.state(neighbour.key).path for neighbour in alive]
        reports = ("journal.jsonl", "logs/0/" + "0" * 20)
        groups: list[str] = []
        for folder in state:
            groups += (read_json(folder.parent / "cgroup.json") or {}).get("folders", [])
        packages = site.getsitepackages()[0]
        own = [folder for neighbour in alive for folder in neighbour.places["folders"]]
        marks = [
            name
            for neighbour in alive
            for name in (f"{neighbour.mark}.txt", f"{neighbour.key[0]}-1")
        ]
        code = ("code/workers/launcher/shim.py", "sdk/slipway/__init__.py")
        return {
            "paths": [
                *(path for neighbour in alive for path in self._outside(neighbour)),
                *(f"{folder}/{name}" for folder in state for name in reports),
                *self.installation,
                *map(
                    str, (data / "node.json", data / "persistent/.users.json", self.machine.token)
                ),
            ],
            "folders": [
                *own,
                *map(str, (data, data / "tasks", data / "persistent", data / "snapshots")),
                *map(str, (self.machine.folder / "installation", *state)),
            ],
            "names": ["node.json", "alpha", "keys", "journal.jsonl", *marks],
            "control_groups": groups,
            "programs": [str(HERE.parents[2]), sys.prefix],
            "executed": [
                *(packages, sys.prefix, f"{sys.base_prefix}/lib/python3.11", "/etc/profile.d"),
                *(str(data / name) for name in ("warm", "code", "sdk", "persistent/alpha")),
                *(str(data / name) for name in ("cache/alpha", "environments", "snapshots")),
                *own,
            ],
            "environment": [
                *(f"{packages}/numpy/__init__.py", f"{sys.prefix}/pyvenv.cfg"),
                *(str(data / name) for name in code),
            ],
        }

    def _processes(self, alive: list[Neighbour]) -> dict[str, int]:
        assert self.machine.agent is not None
        agent = self.machine.agent.pid
        processes = {"the agent": agent}
        processes |= {f"child {pid} of the agent": pid for pid in children(agent)}
        for neighbour in alive:
            processes |= {
                f"process {pid} of alpha": pid for pid in self.machine.processes(neighbour.key)
            }
        return processes

    def _outside(self, neighbour: Neighbour) -> list[str]:
        """The files of a neighbour by their paths outside of its sandbox."""
        return [path for path in neighbour.places["paths"] if os.path.lexists(path)]

    def orders(self, neighbours: list[Neighbour], *names: str) -> str:
        """What the attacker reads from `targets.json`, for the task that is started next."""
        targets = self.targets(neighbours, f"task-{self.started + 1}")
        return json.dumps({"attacks": names or NAMES, "targets": targets})

    def attack(
        self, neighbours: list[Neighbour], *names: str, **changes: Any
    ) -> dict[str, dict[str, Any]]:
        """Run attacks as a task of `beta`; answers what each found, by its name."""
        script = f"from {PACKAGE.replace('/', '.')}.attacker import main\nmain()\n"
        files = hostile_files() | {
            "train.py": script,
            "targets.json": self.orders(neighbours, *names),
        }
        key = self.want("beta", files, **changes)
        self.log_until(key, "^(<end>)", within_s=_ATTACK_WITHIN_S)
        if changes.get("warm"):
            running = next(
                report for report in self.portal.state.reports[key] if report.kind == "running"
            )
            assert running.warm, running
        return self.findings_in(self.portal.state.log_of(key), *names)

    def findings_in(self, text: str, *names: str) -> dict[str, dict[str, Any]]:
        """Read what an attacker printed."""
        results = map(json.loads, re.findall(r"^\s*attacked (\{.*\})$", text, re.MULTILINE))
        findings: dict[str, dict[str, Any]] = {finding["attack"]: finding for finding in results}
        assert set(findings) == set(names or NAMES), text
        return findings

    def close(self) -> None:
        """Leave nothing behind, neither what levels without namespaces leave of tasks."""
        self.machine.close()
        for neighbour in self._neighbours:
            Path("/dev/shm", neighbour.mark).unlink(missing_ok=True)  # noqa: S108
            ipc_remove(neighbour)
        self.portal.close()
        shutil.rmtree(self.machine.folder, ignore_errors=True)


def ipc_remove(neighbour: Neighbour) -> None:
    """Remove the System V memory and the queue of a neighbour from this machine."""
    segment = LIBC.shmget(neighbour.sysv, 64, 0)
    if segment >= 0:
        LIBC.shmctl(segment, 0, None)
    LIBC.mq_unlink(f"/{neighbour.mark}".encode())


def skip_unless_possible(level: str) -> None:
    """Skip a test where this machine cannot have the level."""
    if level == USERS and os.getuid():
        pytest.skip("only root can run tasks as users of projects")
    if level == LEVELS[0] and os.getuid():
        pytest.skip("this is the level `namespaces` without root, which has its own column")
    if level == SHARED and os.getuid():
        pytest.skip("the column is that of an agent that is root, the worst case")


def arena_at(
    level: str,
    *options: str,
    environment: dict[str, str] | None = None,
    data_dir: Path | None = None,
) -> Arena:
    """Set up an arena, or skip where this machine cannot have one at that level."""
    skip_unless_possible(level)
    return Arena(level, *options, environment=environment, data_dir=data_dir)
