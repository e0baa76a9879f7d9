"""Jobs with a framework: the ranks form its cluster, and the script runs on rank 0 alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from slipway.schemas.agent import EnvironmentSpec, TaskReport
from tests.workers.fake_portal import GIB, FakePortal, Key, make_spec
from tests.workers.machines import Machine, Site, eventually
from tests.workers.node_agent.clusters import project
from tests.workers.node_agent.gangs import start_gang

# Silent for longer than the hang limit on all ranks but the first.
SCRIPT = """
import json, os, time, ray
ray.init()
for step in range(10):
    print("step", step, flush=True)
    time.sleep(0.3)
names = ("RANK", "WORLD_SIZE", "TF_CONFIG", "PET_NNODES", "RAY_AUTH_MODE")
env = [name for name in names if name in os.environ]
print(json.dumps({"nodes": len(ray.nodes()), "env": env}))
print("<end>")
"""
RAY = """
import os, time, helper, ray

ray.init()

@ray.remote(num_cpus=1)
def square(x):
    time.sleep(1)
    return helper.square(x), ray.get_runtime_context().get_node_id()

results = ray.get([square.remote(x) for x in range(4)])
print("squares", [value for value, _ in results], "nodes", len({node for _, node in results}))
print("<end>")
"""
DASK = """
import os, time, helper
from dask.distributed import Client

def square(x):
    time.sleep(1)
    return helper.square(x), os.getpid()

if __name__ == "__main__":
    client = Client()
    results = client.gather(client.map(square, range(4)))
    workers = len({process for _, process in results})
    print("squares", [value for value, _ in results], "workers", workers, flush=True)
    print("protocol", client.scheduler.address.partition(":")[0])
    client.close()
    print("<end>")
"""
# As the guide of TensorFlow has it, apart from the training.
SERVERS = """
import json, os, socket
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type,
                         task_index=resolver.task_id, protocol="grpc").join()
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
for address in cluster["ps"] + cluster["worker"]:
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as peer:
        print(peer.makefile().read())
print(resolver.task_type, len(cluster["chief"]), "RANK" in os.environ)
print("<end>")
"""
HELPER = "def square(x):\n    return x * x\n"


@pytest.fixture
def two_nodes(portal: FakePortal, make_machine: Callable[..., Machine]) -> FakePortal:
    """A portal with two nodes."""
    make_machine(name="node-1").start().connected()
    make_machine(name="node-2").start().connected()
    return portal


def start(portal: FakePortal, files: dict[str, str], **changes: Any) -> list[Key]:
    """Start `train.py` of a project on two nodes."""
    digest = portal.state.add_snapshot(files)
    env = {"SLIPWAY_TOKEN": "slw_of_this_attempt", **changes.pop("env", {})}
    return start_gang(portal, "python", "train.py", snapshot=digest, env=env, **changes)


def end_of(portal: FakePortal, key: Key, within_s: float = 60.0) -> TaskReport:
    """Return how a task ended."""
    end = eventually(lambda: portal.state.end_of(key), within_s=within_s)
    assert end is not None
    return end


def whole_log(portal: FakePortal, key: Key, rank: int = 0) -> str:
    """Return the output of a script, which ends with a line that says so."""

    def text() -> str:
        log = portal.state.log_of(key, rank)
        return log if log.endswith("<end>\n") else ""

    return eventually(text)


def test_a_cluster_is_complete_before_the_script_runs_on_rank_0(two_nodes: FakePortal) -> None:
    keys = start(
        two_nodes, project(SCRIPT), framework="ray", env={"PYTHONPATH": "packages"}, hang_after_s=2
    )
    ends = [end_of(two_nodes, key) for key in keys]
    assert [end.reason for end in ends] == ["completed", "completed"], ends
    first = whole_log(two_nodes, keys[0])
    assert "[slipway] The Ray cluster at 127.0.0.1:" in first
    assert "has 2 nodes" in first
    assert json.loads(first.splitlines()[-2]) == {"nodes": 2, "env": ["RAY_AUTH_MODE"]}
    other = "Rank 1 is a node of the Ray cluster until rank 0 has ended.\n"
    eventually(lambda: two_nodes.state.log_of(keys[1], 1) == f"[slipway] {other}")


def test_all_processes_of_one_node_are_one_node_of_ray(site: Site) -> None:
    digest = site.portal.state.add_snapshot(project(SCRIPT))
    env = {"PYTHONPATH": "packages", "SLIPWAY_TOKEN": "slw_of_this_attempt"}
    spec = make_spec("python", "train.py", snapshot=digest, procs=2, framework="ray", env=env)
    key = site.portal.state.want(site.new_name(), spec)
    end = site.end_of(key)
    assert end.reason == "completed", end
    assert '"nodes": 1' in site.whole_log(end)


@pytest.mark.parametrize(
    ("servers", "roles"),
    [
        (None, ["ps 0", "worker 0", "worker 1"]),
        ("2", ["ps 0", "ps 1", "worker 0"]),
    ],
)
def test_ranks_are_parameter_servers_and_workers_of_a_coordinator(
    two_nodes: FakePortal, servers: str | None, roles: list[str]
) -> None:
    env = {"PYTHONPATH": "packages"} | ({"PARAMETER_SERVERS": servers} if servers else {})
    keys = start(two_nodes, project(SERVERS), framework="parameter_server", procs=2, env=env)
    ends = [end_of(two_nodes, key) for key in keys]
    assert [end.reason for end in ends] == ["completed", "completed"], ends
    lines = whole_log(two_nodes, keys[0]).splitlines()
    assert "has 3 servers" in lines[0]
    assert lines[1:-1] == [*roles, "chief 1 False"]


@pytest.mark.parametrize("servers", ["0", "3", "two"])
def test_a_wrong_number_of_parameter_servers_is_refused(
    two_nodes: FakePortal, servers: str
) -> None:
    env = {"PYTHONPATH": "packages", "PARAMETER_SERVERS": servers}
    keys = start(two_nodes, project(SERVERS), framework="parameter_server", procs=2, env=env)
    end = end_of(two_nodes, keys[0])
    assert end.reason == "exit"
    assert f"PARAMETER_SERVERS is '{servers}'. With 4 ranks it can be 1 to 2" in end.message


@pytest.mark.parametrize(("framework", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_an_environment_without_the_framework_says_what_to_add(
    site: Site, framework: str, package: str
) -> None:
    digest = site.portal.state.add_snapshot({"train.py": "print('ran')"})
    spec = make_spec("python", "train.py", snapshot=digest, framework=framework)
    key = site.portal.state.want(site.new_name(), spec)
    end = site.end_of(key)
    assert end.reason == "exit", end
    assert f"Add {package} to its packages" in end.message
    assert "ran" not in site.portal.state.log_of(key, 0)


@pytest.mark.thorough
def test_a_node_that_does_not_join_is_named(two_nodes: FakePortal) -> None:
    env = {"PYTHONPATH": "packages", "SLIPWAY_CLUSTER_WAIT_S": "4"}
    files = project(SCRIPT, "never-joins")
    keys = start(two_nodes, files, framework="ray", env=env)
    end = end_of(two_nodes, keys[0])
    assert "1 of 2 tasks joined the Ray cluster in 4 s" in end.message
    assert end_of(two_nodes, keys[1]).reason == "completed"


@pytest.mark.thorough
def test_the_death_of_a_node_fails_its_task(two_nodes: FakePortal) -> None:
    script = "import ray, time\nray.init()\ntime.sleep(600)"
    files = project(script, "dies")
    keys = start(two_nodes, files, framework="ray", env={"PYTHONPATH": "packages"})
    end = end_of(two_nodes, keys[1])
    assert end.reason == "exit"
    assert "The Ray node of rank 1 ended with status 1, before the script." in end.message
    assert "the object store is full" in end.message
    assert two_nodes.state.end_of(keys[0]) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "requirements", "script", "expected"),
    [
        ("ray", "ray\n", RAY, "squares [0, 1, 4, 9] nodes 2"),
        ("dask", "dask\ndistributed\n", DASK, "squares [0, 1, 4, 9] workers 2"),
    ],
)
def test_an_unmodified_script_uses_two_nodes(
    two_nodes: FakePortal, framework: str, requirements: str, script: str, expected: str
) -> None:
    digest = ("ca" if framework == "ray" else "da") * 32
    two_nodes.state.environments[digest] = EnvironmentSpec(
        digest=digest, requirements=requirements, python="3.11"
    )
    keys = start(
        two_nodes,
        {"train.py": script, "helper.py": HELPER},
        framework=framework,
        environment=digest,
        resources={"cpu_millis": 2000, "memory_bytes": 4 * GIB},
    )
    ends = [end_of(two_nodes, key, within_s=600) for key in keys]
    assert [end.reason for end in ends] == ["completed", "completed"], ends
    log = whole_log(two_nodes, keys[0])
    assert expected in log
    assert framework != "dask" or "protocol tls" in log
