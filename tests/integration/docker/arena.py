"""The arena of `tests/security/isolation`, with a node whose tasks run in containers."""

import json
import secrets
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.security.isolation.arena import Arena, Neighbour, machine_folders
from tests.security.isolation.attacks import CONTAINERS
from tests.workers.fake_portal import Key
from workers.launcher.processes import descendants, start_ticks

# What a container shows of our code and of its environment.
_CODE = ("/slipway/code/workers/launcher/shim.py", "/slipway/sdk/slipway/__init__.py")
_PACKAGES = "/opt/environment/lib/python3.11/site-packages"
_STATE = "/slipway/state"


class ContainerArena(Arena):
    """An arena at the level `containers`, on the engine of the tests."""

    def __init__(self, engine: Path, image: str, requirements: Path) -> None:
        self._engine = engine
        super().__init__(
            CONTAINERS,
            *("--backend", "docker", "--docker-socket", str(engine), "--docker-image", image),
            *("--requirements", str(requirements)),
            # The engine may still hold containers of an earlier run.
            name=f"node-{secrets.token_hex(4)}",
        )

    def docker(self, *arguments: str) -> str:
        """Return what a docker command prints."""
        command = ["docker", "--host", f"unix://{self._engine}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def container(self, key: Key) -> dict[str, Any]:
        """Return the description of a task's container."""
        name = f"slipway-{self.machine.name}-{key[0]}-{key[1]}"
        description: dict[str, Any] = json.loads(self.docker("inspect", name))[0]
        return description

    def want(self, project: str, files: dict[str, str], *arguments: str, **changes: Any) -> Key:
        """Start a task in a container."""
        return super().want(project, files, *arguments, **{"backend": "docker", **changes})

    def targets(self, neighbours: list[Neighbour], own: str) -> dict[str, Any]:
        """All that there is to attack, by its names inside of a container and outside."""
        targets = super().targets(neighbours, own)
        alive = [one for one in neighbours if self.portal.state.end_of(one.key) is None]
        hosts = {self.container(one.key)["Name"].lstrip("/") for one in alive}
        for one in alive:
            networks = self.container(one.key)["NetworkSettings"]["Networks"].values()
            hosts |= {network["IPAddress"] for network in networks}
            hosts |= {network["Gateway"] for network in networks}
        reports = ("journal.jsonl", "claim.json", "stop.json", "lease", "logs/0/" + "0" * 20)
        return {
            **targets,
            "hosts": sorted({*targets["hosts"], *hosts}),
            "sockets": [*targets["sockets"], str(self._engine), "/slipway/shared/bell"],
            "own_state": [*targets["own_state"], *(f"{_STATE}/{name}" for name in reports)],
            "machine": machine_folders(),
        }

    def _files_to_attack(self, alive: list[Neighbour]) -> dict[str, list[str]]:
        files = super()._files_to_attack(alive)
        own = [str(folder) for one in alive for folder in self._folders_outside(one)]
        inside = {folder for one in alive for folder in one.places["folders"]}
        groups = [path for one in alive for path in self._groups(one)]
        return {
            **files,
            "paths": [
                *files["paths"],
                *(f"{folder}/{one.mark}.txt" for one in alive for folder in own),
            ],
            # The same names lead to the attacker's own folders.
            "folders": [*(set(files["folders"]) - inside), *own],
            "executed": [
                *(set(files["executed"]) - inside),
                *(*own, "/opt/environment", _PACKAGES, "/usr/lib/python3.11"),
                *("/slipway/code", "/slipway/code/workers/launcher", "/slipway/sdk/slipway"),
                *("/slipway", "/slipway/shared", _STATE),
            ],
            "environment": [*_CODE, "/opt/environment/pyvenv.cfg", "/usr/lib/python3.11/os.py"],
            "control_groups": [*groups, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"],
        }

    def _folders_outside(self, one: Neighbour) -> list[Path]:
        data = self.machine.data_dir
        task = data / "tasks" / f"{one.key[0]}-{one.key[1]}"
        run = data / "persistent" / "alpha" / f"run-{one.key[0].removeprefix('task-')}"
        return [
            task / "work",
            task / "home",
            run,
            run.with_name("person"),
            data / "cache" / "alpha",
        ]

    def _groups(self, one: Neighbour) -> list[str]:
        pid = self.container(one.key)["State"]["Pid"]
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        places = (line.split(":", 2) for line in lines)
        return [f"/sys/fs/cgroup/{controllers}{path}" for _, controllers, path in places]

    def _processes(self, alive: list[Neighbour]) -> dict[str, int]:
        assert self.machine.agent is not None
        processes = {"the agent": self.machine.agent.pid}
        for one in alive:
            shim = self.container(one.key)["State"]["Pid"]
            pids = [shim, *descendants(shim)]
            processes |= {f"process {pid} of alpha": pid for pid in pids if start_ticks(pid)}
        return processes

    def close(self) -> None:
        """Remove containers and networks too, in which the agent may have been quicker."""
        self.machine.kill()
        prefix = f"name=slipway-{self.machine.name}-task-"
        for name in self.docker("ps", "-aq", "--filter", prefix).split():
            with suppress(subprocess.CalledProcessError):
                self.docker("rm", "--force", name)
        for name in self.docker("network", "ls", "-q", "--filter", "name=slipway-w-task-").split():
            with suppress(subprocess.CalledProcessError):
                self.docker("network", "rm", name)
        super().close()
