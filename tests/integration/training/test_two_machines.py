"""A job on two nodes that are two machines to each other: network namespaces with a link between.

The platform runs outside of both; each node's agent runs in its namespace and joins with a token.
"""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.live import Live
from tests.jobs import Jobs
from tests.processes import ROOT, Program, installation

pytestmark = [pytest.mark.integration, pytest.mark.torch]

_DDP = """
import os, socket, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(4, 1).double())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(64, 4, dtype=torch.float64)[dist.get_rank()::dist.get_world_size()]
for _ in range(5):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
links = sorted(name for _, name in socket.if_nameindex() if name != "lo")
print("world", dist.get_world_size(), "node", os.environ["GROUP_RANK"], "links", *links)
print("weights", model.module.weight.sum().item(), flush=True)
dist.destroy_process_group()
"""


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

    def remove(self) -> None:
        """Leave nothing."""
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


@pytest.fixture
def cable() -> Iterator[Cable]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces can only be made by root")
    try:
        made = Cable()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    made.remove()


@pytest.fixture
def live(tmp_path: Path, cable: Cable) -> Iterator[Live]:
    """A Slipway that listens to both namespaces, with no node of its own."""
    with installation(tmp_path) as place:
        assert place.manage("prepare", "--no-input").returncode == 0
        slipway = Live(place)
        names = ",".join(cable.gateways.values())
        slipway.start(SLIPWAY_BIND="0.0.0.0", SLIPWAY_ALLOWED_HOSTS=names)  # noqa: S104
        yield slipway


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


def test_two_nodes_train_one_model(live: Live, cable: Cable, tmp_path: Path) -> None:
    agents = [join(live, cable, name, tmp_path) for name in cable.spaces]
    with live.api() as api:
        jobs = Jobs(api)
        # A whole machine for each task: the two cannot end up on one.
        job = jobs.submit(_DDP, nodes=2, procs=1, tier="cpu-large")
        assert jobs.end_of(job, within_s=90)["state"] == "succeeded", jobs.look(job)
        logs = [jobs.whole_log(job, rank) for rank in (0, 1)]
    worlds = [log.splitlines()[-2] for log in logs]
    assert [line.split(" links")[0] for line in worlds] == ["world 2 node 0", "world 2 node 1"]
    assert worlds[0].split()[-1] != worlds[1].split()[-1]
    weights = [line for log in logs for line in log.splitlines() if line.startswith("weights")]
    assert len(weights) == 2
    assert weights[0] == weights[1]
    for agent in agents:
        agent.signal(signal.SIGTERM)
        assert agent.wait(20) == 0
