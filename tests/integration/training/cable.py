"""Two nodes that are two machines to each other: network namespaces with links that can be cut."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

from tests.faults.live import Live
from tests.processes import ROOT, Program


def ip(*words: str) -> None:
    """Run one command of iproute2; raises CalledProcessError."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Cable:
    """Two namespaces with a link between them, and one of each to this machine.

    No bridge: where Docker runs, the packets between its ports would be Docker's to drop.
    """

    def __init__(self) -> None:
        self._mark = secrets.token_hex(3)
        self._net = f"10.{200 + secrets.randbelow(50)}"
        self.spaces = {name: f"slipway-{self._mark}-{name}" for name in ("left", "right")}
        for space in self.spaces.values():
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        self._connect_spaces()
        self.gateways = {
            name: self._connect_to_us(number, space)
            for number, (name, space) in enumerate(self.spaces.items())
        }

    def address_of(self, name: str) -> str:
        """How a node is reached by the other."""
        return f"{self._net}.9.{1 + list(self.spaces).index(name)}"

    def _connect_spaces(self) -> None:
        ends = {name: f"d{self._mark}{name[0]}" for name in self.spaces}
        ip("link", "add", ends["left"], "type", "veth", "peer", "name", ends["right"])
        for name, space in self.spaces.items():
            ip("link", "set", ends[name], "netns", space)
            ip("-n", space, "address", "add", f"{self.address_of(name)}/24", "dev", ends[name])
            ip("-n", space, "link", "set", ends[name], "up")

    def _connect_to_us(self, number: int, space: str) -> str:
        ours, theirs = f"o{self._mark}{number}", f"i{self._mark}{number}"
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs)
        ip("address", "add", f"{self._net}.{number}.1/24", "dev", ours)
        ip("link", "set", ours, "up")
        ip("link", "set", theirs, "netns", space)
        ip("-n", space, "address", "add", f"{self._net}.{number}.2/24", "dev", theirs)
        ip("-n", space, "link", "set", theirs, "up")
        return f"{self._net}.{number}.1"

    def cut(self, *, up: bool = False) -> None:
        """Take the link between the two down, or `up` again."""
        for name, space in self.spaces.items():
            ip("-n", space, "link", "set", f"d{self._mark}{name[0]}", "up" if up else "down")

    def cut_off(self, name: str, *, up: bool = False) -> None:
        """Take both links of one down, so that it reaches nobody, or `up` again."""
        number, space = list(self.spaces).index(name), self.spaces[name]
        for link in (f"d{self._mark}{name[0]}", f"i{self._mark}{number}"):
            ip("-n", space, "link", "set", link, "up" if up else "down")

    def remove(self) -> None:
        """Leave nothing."""
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


def join(live: Live, cable: Cable, name: str, folder: Path) -> Program:
    """Start the agent of a node in a namespace of its own, and wait until it is connected."""
    token = folder / f"{name}.token"
    made = live.place.manage("node_token", "--node", name)
    assert made.returncode == 0, made.stderr
    token.write_text(made.stdout)
    agent = Program(
        [
            *(
                "ip",
                "netns",
                "exec",
                cable.spaces[name],
                sys.executable,
                "-m",
                "workers.node_agent",
            ),
            *("--url", f"http://{cable.gateways[name]}:{live.place.portal_port}", "--name", name),
            *("--data-dir", str(folder / name), "--token-file", str(token)),
            *("--python", sys.executable, "--backend", "process", "--stop-tasks-on-exit"),
            *("--address", cable.address_of(name)),
        ],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"},
        output=folder / f"{name}.log",
    )
    agent.wait_for_text("is connected to", within_s=60)
    return agent
