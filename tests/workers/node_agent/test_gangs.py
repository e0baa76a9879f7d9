"""One job on several nodes: the ranks find each other through what their agents report."""

import json
from collections.abc import Callable

import pytest

from slipway.schemas.agent import Rendezvous
from tests.turns import thorough_after
from tests.workers.fake_portal import FakePortal, Key, make_spec
from tests.workers.machines import Machine, eventually

pytestmark = [pytest.mark.ranks, pytest.mark.torch]

SUM = """
import json, os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(4) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(json.dumps({"rank": dist.get_rank(), "world": dist.get_world_size(), "total": total[0].item(),
                  "group": os.environ["GROUP_RANK"], "groups": os.environ["GROUP_WORLD_SIZE"]}))
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("first_way", "second_way"),
    [pytest.param("torch", "torch", marks=pytest.mark.slow), ("torch", None)],
)
def test_ranks_on_two_nodes_form_one_world(
    portal: FakePortal,
    make_machine: Callable[..., Machine],
    first_way: str | None,
    second_way: str | None,
) -> None:
    make_machine(name="node-1").start().connected()
    make_machine(name="node-2").start().connected()
    keys = start_gang(portal, (first_way, second_way))
    introduce(portal, keys)
    for number, key in enumerate(keys):
        end = eventually(lambda key=key: portal.state.end_of(key), within_s=90)  # type: ignore[misc]
        assert end.reason == "completed", end
        assert any(report.ranks_connected for report in portal.state.reports[key])
        for rank in (2 * number, 2 * number + 1):
            eventually(lambda key=key, rank=rank: portal.state.log_of(key, rank).endswith("}\n"))  # type: ignore[misc]
            result = json.loads(portal.state.log_of(key, rank).splitlines()[-1])
            assert result == {
                "rank": rank,
                "world": 4,
                "total": 10.0,
                "group": str(number),
                "groups": "2",
            }


def introduce(portal: FakePortal, keys: list[Key]) -> None:
    """Wait for the address of every task, and hand all of them to all tasks."""
    for key in keys:
        eventually(lambda key=key: "rendezvous" in portal.state.kinds(key), within_s=60)  # type: ignore[misc]
    assert not any("running" in portal.state.kinds(key) for key in keys)
    portal.state.introduce(keys)


def start_gang(portal: FakePortal, ways: tuple[str | None, str | None]) -> list[Key]:
    """Start two tasks of two ranks, each on a node of its own."""
    digest = portal.state.add_snapshot({"sum.py": SUM})
    keys = []
    for number, way in enumerate(ways):
        spec = make_spec(
            *("python", "sum.py"),
            snapshot=digest,
            warm=way,
            procs=2,
            world_size=4,
            first_rank=2 * number,
        )
        node = f"node-{number + 1}"
        key = portal.state.want(f"t{number}", spec, node=node, workload_id="gang", index=number)
        keys.append(key)
    return keys


@pytest.mark.parametrize(
    ("rank", "message"),
    thorough_after(1, [(0, "1/2 clients joined"), (1, "trying to connect to (127.0.0.1, 9)")]),
)
def test_a_gang_that_is_not_whole_says_so(
    portal: FakePortal, machine: Machine, rank: int, message: str
) -> None:
    script = (
        "import datetime, torch.distributed\n"
        "torch.distributed.init_process_group('gloo', timeout=datetime.timedelta(seconds=2))\n"
    )
    digest = portal.state.add_snapshot({"a.py": script})
    spec = make_spec("python", "a.py", snapshot=digest, world_size=2, first_rank=rank)
    key = portal.state.want("t1", spec, index=rank)
    eventually(lambda: "rendezvous" in portal.state.kinds(key), within_s=60)
    report = next(item for item in portal.state.reports[key] if item.kind == "rendezvous")
    meeting = report.rendezvous or Rendezvous(address="127.0.0.1", port=9)
    portal.state.meet(key, meeting, [])
    end = eventually(lambda: portal.state.end_of(key), within_s=90)
    assert end.reason == "world_size", end
    assert "world of 2" in end.message
    assert message in end.message


@pytest.mark.thorough
@pytest.mark.parametrize(("script", "seen"), [("print('epoch 1')", False), (SUM, True)])
def test_a_rendezvous_store_that_no_rank_uses_is_noticed(
    portal: FakePortal, machine: Machine, script: str, seen: bool
) -> None:
    key = portal.state.run("t1", script, warm="torch", procs=2)
    end = eventually(lambda: portal.state.end_of(key), within_s=90)
    assert end.reason == "completed", end
    reports = portal.state.reports[key]
    assert any(report.warm for report in reports)
    assert [item.ranks_connected for item in reports if item.ranks_connected is not None] == [seen]
