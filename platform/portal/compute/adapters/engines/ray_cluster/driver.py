"""The driver of an allocation: runs in the Ray cluster and starts one agent for each task.

Its text is sent with the job, so the cluster needs nothing of Slipway to run it, but Ray itself and
the interpreter of the agents. It reads its order from SLIPWAY_ALLOCATION.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time

import ray  # type: ignore[import-not-found,unused-ignore]
from ray.util.placement_group import (  # type: ignore[import-not-found,unused-ignore]
    placement_group,
    remove_placement_group,
)
from ray.util.scheduling_strategies import (  # type: ignore[import-not-found,unused-ignore]
    PlacementGroupSchedulingStrategy,
)

POLL_S = 0.5


class Agent:
    """One agent, a process below a worker of Ray."""

    def start(self, argv: list[str], variables: dict[str, str]) -> None:
        """Start it. It ends with this worker."""
        libc = ctypes.CDLL(None)
        folder = os.path.expanduser(argv[argv.index("--data-dir") + 1])  # noqa: PTH111
        argv[argv.index("--data-dir") + 1] = folder
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self._process = subprocess.Popen(
            argv,
            env={**kept, **variables},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: libc.prctl(1, signal.SIGTERM),  # noqa: PLW1509
        )

    def poll(self) -> "int | None":
        """Return the exit status, None while it runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask it to let its task save and end."""
        self._process.terminate()


def main() -> None:
    """Wait for the machines, start the agents, and stay until they have ended."""
    order = json.loads(os.environ.pop("SLIPWAY_ALLOCATION"))
    is_stopped = []
    ray.init(address="auto", log_to_driver=True)
    signal.signal(signal.SIGTERM, lambda *_: is_stopped.append(True))
    bundles = [order["bundle"]] * order["tasks"]
    group = placement_group(bundles, strategy="SPREAD", name=order["name"])
    while not group.wait(POLL_S):
        if is_stopped:
            remove_placement_group(group)
            sys.exit(143)
    remote = ray.remote(Agent)
    agents = []
    for index in range(order["tasks"]):
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        agents.append(
            remote.options(
                num_cpus=order["bundle"].get("CPU", 0),
                num_gpus=order["bundle"].get("GPU", 0),
                scheduling_strategy=strategy,
            ).remote()
        )
    starts = [
        agent.start.remote(order["argv"], {**order["variables"], order["index"]: str(index)})
        for index, agent in enumerate(agents)
    ]
    ray.get(starts)
    has_told = False
    while True:
        statuses = ray.get([agent.poll.remote() for agent in agents])
        if all(status is not None for status in statuses):
            break
        if is_stopped and not has_told:
            has_told = True
            ray.get([agent.terminate.remote() for agent in agents])
        time.sleep(POLL_S)
    remove_placement_group(group)
    sys.exit(143 if is_stopped else max(abs(status) for status in statuses))


if __name__ == "__main__":
    main()
