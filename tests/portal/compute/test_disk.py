"""The disk of a node: reported by its agent, shown by the API and on the node's page."""

from typing import Any

import pytest

from slipway.schemas.agent import DiskFacts
from tests.personas import Api, json_of
from tests.portal.workloads.machines import Machine, make_machine

GIB = 1024**3
DISK = DiskFacts(capacity_bytes=100 * GIB, task_bytes=25 * GIB, reserve_bytes=2 * GIB)


def report(machine: Machine, disk: Any, **changes: Any) -> int:
    """Send a heartbeat over HTTP with the facts of a disk; returns the status."""
    fields = machine.facts.model_dump(mode="json") | {"disk": disk}
    body = {
        "boot_id": "boot-1",
        "facts": fields,
        "cpu_percent": 1.0,
        "memory_used_bytes": 1,
        **changes,
    }
    return machine.call("POST", "heartbeat", body).status_code


def test_the_api_shows_the_disk_of_a_node(root: Api) -> None:
    machine = make_machine("rack-1")
    assert json_of(root.get("nodes/rack-1"))["disk"] is None
    assert report(machine, DISK.model_dump(), disk_free_bytes=40 * GIB) == 200
    assert json_of(root.get("nodes/rack-1"))["disk"] == {
        "capacity_bytes": 100 * GIB,
        "task_bytes": 25 * GIB,
        "reserve_bytes": 2 * GIB,
        "free_bytes": 40 * GIB,
    }
    changed = DISK.model_copy(update={"task_bytes": 5 * GIB})
    assert report(machine, changed.model_dump()) == 200
    disk = json_of(root.get("nodes/rack-1"))["disk"]
    assert (disk["task_bytes"], disk["free_bytes"]) == (5 * GIB, None)


@pytest.mark.parametrize(
    "disk",
    [
        {**DISK.model_dump(), "task_bytes": -1},
        {**DISK.model_dump(), "task_bytes": "all"},
        {"capacity_bytes": GIB},
        "large",
    ],
)
def test_what_is_no_disk_is_refused(root: Api, disk: Any) -> None:
    machine = make_machine("rack-1")
    assert report(machine, disk) == 422
    assert json_of(root.get("nodes/rack-1"))["disk"] is None
