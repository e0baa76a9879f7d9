"""Jobs of several ranks whose framework is not torch: what each rank is told of the others."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from slipway.schemas.agent import EnvironmentSpec
from tests.workers.fake_portal import GIB, FakePortal, Key, make_spec
from tests.workers.machines import Machine, Site, eventually
from tests.workers.node_agent.gangs import start_gang

# Rank 0 listens on its port, as a framework does, and the others greet it there.
MEET = """
import json, os, socket, time
rank, hosts = int(os.environ["RANK"]), os.environ["SLIPWAY_HOSTS"].split(",")
config = json.loads(os.environ["TF_CONFIG"])
host, port = hosts[0].split(":")
greetings = []
if rank == 0:
    server = socket.create_server(("", int(port)))
    while len(greetings) < len(hosts) - 1:
        greetings.append(server.accept()[0].makefile().read())
else:
    while True:
        try:
            with socket.create_connection((host, int(port))) as peer:
                peer.sendall(f"rank {rank}".encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
print(json.dumps({
    "rank": rank, "hosts": hosts, "workers": config["cluster"]["worker"], "task": config["task"],
    "file": open(os.environ["SLIPWAY_HOSTFILE"]).read(), "greetings": sorted(greetings),
    "local": os.environ["LOCAL_WORLD_SIZE"], "group": os.environ["GROUP_RANK"]}))
print("<end>")
"""
# `fit` of Keras 3 does not train on several workers, that of Keras 2 does.
KERAS = """
import os
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = tf.random.stateless_normal((256, 8), seed=(1, 2))
data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1))).batch(64)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(data, epochs=1, verbose=0)
print("replicas in sync", strategy.num_replicas_in_sync, flush=True)
print("weights", float(tf.reduce_sum(model.weights[0])), flush=True)
"""
TORCHRUN = """
import os, torch.distributed as dist
dist.init_process_group("gloo")
print("world", dist.get_world_size(), "rank", dist.get_rank(), flush=True)
dist.destroy_process_group()
"""
RAY = """
import time, ray, slipway.ray
slipway.ray.init(log_to_driver=False)

@ray.remote(num_cpus=1)
def square(x):
    time.sleep(1)
    return x * x, ray.get_runtime_context().get_node_id()

results = ray.get([square.remote(x) for x in range(4)])
print("squares", [value for value, _ in results], "nodes", len({node for _, node in results}))
"""
LAUNCH = """
import subprocess
subprocess.run(["torchrun", "--nproc-per-node", "2", "train.py"], check=True)
"""


def check_meeting(answers: list[dict[str, Any]]) -> None:
    """Check that all ranks have the same list, each its own place in it, and could use it."""
    hosts = answers[0]["hosts"]
    assert len(set(hosts)) == len(answers)
    for rank, answer in enumerate(answers):
        assert answer["rank"] == rank
        assert answer["hosts"] == answer["workers"] == hosts
        assert answer["task"] == {"type": "worker", "index": rank}
    assert answers[0]["greetings"] == [f"rank {rank}" for rank in range(1, len(answers))]


def connected(portal: FakePortal, key: Key) -> list[bool]:
    """Return whether ranks had connected, from each report of a task that says so."""
    reports = portal.state.reports[key]
    return [item.ranks_connected for item in reports if item.ranks_connected is not None]


@pytest.mark.thorough
def test_the_ranks_of_one_node_find_each_other(site: Site) -> None:
    end = site.run_to_end(MEET, procs=3, env={"TF_CONFIG": "left over in the project"})
    assert end.reason == "completed", end
    answers = [json.loads(site.whole_log(end, rank)) for rank in range(3)]
    check_meeting(answers)
    assert answers[0]["file"] == "127.0.0.1 slots=3\n"
    assert connected(site.portal, (end.task_id, end.epoch)) == [True]


@pytest.mark.thorough
def test_the_ranks_of_two_nodes_find_each_other(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    make_machine(name="node-1").start().connected()
    make_machine(name="node-2").start().connected()
    digest = portal.state.add_snapshot({"meet.py": MEET})
    keys = start_gang(portal, "python", "meet.py", procs=2, snapshot=digest)
    answers = []
    for index, key in enumerate(keys):
        end = eventually(lambda key=key: portal.state.end_of(key), within_s=60)  # type: ignore[misc]
        assert end.reason == "completed", end
        for rank in (2 * index, 2 * index + 1):
            text = eventually(
                lambda key=key, rank=rank: (  # type: ignore[misc]
                    log if (log := portal.state.log_of(key, rank)).endswith("<end>\n") else None
                )
            )
            answers.append(json.loads(text.splitlines()[0]))
            assert answers[-1]["group"] == str(index)
    check_meeting(answers)
    assert answers[0]["file"] == "127.0.0.1 slots=2\n127.0.0.1 slots=2\n"
    assert [connected(portal, key) for key in keys] == [[True], [True]]


def test_a_job_of_one_rank_is_told_of_no_others(site: Site) -> None:
    script = (
        "import json, os\n"
        "print(json.dumps([name for name in os.environ if 'HOST' in name or 'TF_' in name]))\n"
        "print('<end>')"
    )
    end = site.run_to_end(script)
    assert json.loads(site.whole_log(end)) == []
    assert connected(site.portal, (end.task_id, end.epoch)) == []


@pytest.mark.parametrize("own", [{}, {"RAY_AUTH_MODE": "disabled"}])
def test_ray_refuses_clients_of_other_jobs(site: Site, own: dict[str, str]) -> None:
    script = (
        "import json, os\n"
        "print(json.dumps([os.environ.get('RAY_AUTH_' + name) for name in ('MODE', 'TOKEN')]))\n"
        "print('<end>')"
    )
    tokens = set()
    for attempt in ("slw_a_1", "slw_a_2"):
        end = site.run_to_end(script, procs=2, env={"SLIPWAY_TOKEN": attempt, **own})
        modes = [json.loads(site.whole_log(end, rank)) for rank in (0, 1)]
        assert modes[0] == modes[1]
        assert modes[0][0] == own.get("RAY_AUTH_MODE", "token")
        tokens.add(modes[0][1])
    assert tokens == {None} if own else len(tokens) == 2


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        ("print('epoch 1')", [False]),
        # A server that only its own rank uses, as a dashboard is.
        (
            (
                "import socket; server = socket.create_server(('127.0.0.1', 0))\n"
                "client = socket.create_connection(server.getsockname()); server.accept()"
            ),
            [False],
        ),
        ("raise SystemExit(3)", []),
    ],
)
def test_ranks_that_never_connect_are_noticed(site: Site, script: str, seen: list[bool]) -> None:
    end = site.run_to_end(script, procs=2)
    assert connected(site.portal, (end.task_id, end.epoch)) == seen


def test_ranks_that_connect_on_ports_of_their_own_are_noticed(site: Site) -> None:
    script = """
import os, pathlib, socket, time
place = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"], "port")
if os.environ["RANK"] == "0":
    server = socket.create_server(("127.0.0.1", 0))
    place.with_suffix(".new").write_text(str(server.getsockname()[1]))
    place.with_suffix(".new").rename(place)
    peer = server.accept()[0]
else:
    while not place.exists():
        time.sleep(0.05)
    peer = socket.create_connection(("127.0.0.1", int(place.read_text())))
peer.recv(1)
"""
    key = site.run(script, procs=2, persistent_key="own-ports")
    eventually(lambda: connected(site.portal, key) == [True])
    site.portal.state.forget(key)


def test_ports_of_ranks_are_assigned_to_nobody_else(site: Site) -> None:
    script = """
import os, socket, time
host, port = os.environ["SLIPWAY_HOSTS"].split(",")[0].split(":")
taken = []
for address in ("", host):
    with socket.socket() as other:
        try:
            other.bind((address, int(port)))
        except OSError:
            taken.append(address)
print(len(taken))
print("<end>")
"""
    end = site.run_to_end(script, procs=2)
    assert site.whole_log(end, 1) == "2\n"


@pytest.mark.thorough
def test_a_node_that_dies_while_it_waits_for_others_ends_its_task_once(
    portal: FakePortal, machine: Machine
) -> None:
    spec = make_spec("python", "-c", "print('ran')", world_size=2)
    key = portal.state.want("t1", spec)
    eventually(lambda: "rendezvous" in portal.state.kinds(key))
    machine.kill()
    machine.start().connected()
    report = next(item for item in portal.state.reports[key] if item.kind == "rendezvous")
    assert report.rendezvous is not None
    assert report.member is not None
    portal.state.meet(key, report.rendezvous, [report.member])
    end = eventually(lambda: portal.state.end_of(key), within_s=30)
    assert end.reason == "completed"
    assert portal.state.kinds(key).count("rendezvous") == 1


@pytest.mark.thorough
def test_a_node_without_an_address_for_others_says_so(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    make_machine("--address", "0.0.0.0").start().connected()  # noqa: S104
    key = portal.state.want("t1", make_spec("python", "-c", "print()", world_size=2))
    end = eventually(lambda: portal.state.end_of(key))
    assert end.reason == "start_failed"
    assert "--address" in end.message


def worlds_of(portal: FakePortal, key: Key, rank: int) -> list[tuple[str, str]]:
    """World size and rank that the two ranks of a torchrun print. Their lines may be mixed."""

    def lines() -> list[tuple[str, str]]:
        ranks = re.findall(r"world (\d+) rank (\d)", portal.state.log_of(key, rank))
        return ranks if len(ranks) == 2 else []

    return eventually(lines)


@pytest.mark.ranks
@pytest.mark.torch
@pytest.mark.thorough
@pytest.mark.parametrize(
    "argv", [("python", "launch.py"), ("torchrun", "--nproc-per-node", "2", "train.py")]
)
def test_torchrun_on_each_node_forms_one_world(
    portal: FakePortal, make_machine: Callable[..., Machine], argv: tuple[str, ...]
) -> None:
    make_machine(name="node-1").start().connected()
    make_machine(name="node-2").start().connected()
    files = {"train.py": TORCHRUN, "launch.py": LAUNCH}
    digest = portal.state.add_snapshot(files)
    keys = start_gang(portal, *argv, snapshot=digest, warm="torch")
    worlds = []
    for rank, key in enumerate(keys):
        end = eventually(lambda key=key: portal.state.end_of(key), within_s=120)  # type: ignore[misc]
        assert end.reason == "completed", end
        worlds.extend(worlds_of(portal, key, rank))
    assert sorted(worlds) == [("4", str(rank)) for rank in range(4)]


@pytest.mark.slow
def test_ray_forms_one_cluster_over_two_nodes(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    make_machine(name="node-1").start().connected()
    make_machine(name="node-2").start().connected()
    digest = "ce" * 32
    portal.state.environments[digest] = EnvironmentSpec(
        digest=digest, requirements="ray\n", python="3.11"
    )
    keys = start_gang(
        portal,
        *("python", "train.py"),
        snapshot=portal.state.add_snapshot({"train.py": RAY}),
        environment=digest,
        env={"SLIPWAY_TOKEN": "slw_of_this_attempt"},
        resources={"cpu_millis": 2000, "memory_bytes": 4 * GIB},
    )
    for key in keys:
        end = eventually(lambda key=key: portal.state.end_of(key), within_s=300)  # type: ignore[misc]
        assert end.reason == "completed", (end, portal.state.log_of(keys[0], 0))
    log = portal.state.log_of(keys[0], 0)
    assert "squares [0, 1, 4, 9] nodes 2" in log, log
    assert connected(portal, keys[0]) == [True]


@pytest.mark.slow
def test_keras_trains_one_model_on_two_nodes(
    portal: FakePortal, make_machine: Callable[..., Machine]
) -> None:
    make_machine(name="node-1").start().connected()
    make_machine(name="node-2").start().connected()
    digest = "cd" * 32
    portal.state.environments[digest] = EnvironmentSpec(
        digest=digest, requirements="tensorflow-cpu\ntf_keras\n", python="3.11"
    )
    keys = start_gang(
        portal,
        *("python", "train.py"),
        snapshot=portal.state.add_snapshot({"train.py": KERAS}),
        environment=digest,
        resources={"cpu_millis": 1000, "memory_bytes": 3 * GIB},
    )
    logs = []
    for rank, key in enumerate(keys):
        end = eventually(lambda key=key: portal.state.end_of(key), within_s=300)  # type: ignore[misc]
        assert end.reason == "completed", (end, portal.state.log_of(key, rank))
        eventually(lambda key=key, rank=rank: "weights" in portal.state.log_of(key, rank))  # type: ignore[misc]
        logs.append(portal.state.log_of(key, rank))
    assert all("replicas in sync 2" in log for log in logs), logs
    weights = [log[log.index("weights") :].split()[1] for log in logs]
    assert weights[0] == weights[1]
