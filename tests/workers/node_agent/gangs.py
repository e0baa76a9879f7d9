"""Gangs of two tasks, each on a node of its own."""

from typing import Any

from tests.workers.fake_portal import FakePortal, Key, make_spec
from tests.workers.machines import eventually


def start_gang(portal: FakePortal, *argv: str, procs: int = 1, **changes: Any) -> list[Key]:
    """Start two tasks of some ranks, each on a node of its own, and introduce them."""
    keys = [
        portal.state.want(
            f"t{index}",
            make_spec(
                *argv, procs=procs, world_size=2 * procs, first_rank=index * procs, **changes
            ),
            node=f"node-{index + 1}",
            workload_id="gang",
            index=index,
        )
        for index in range(2)
    ]
    for key in keys:
        eventually(lambda key=key: "rendezvous" in portal.state.kinds(key), within_s=900)  # type: ignore[misc]
    portal.state.introduce(keys)
    return keys
