"""Wheels and source archives of a job's code: fetched by digest, built in the sandbox of builds."""

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from slipway.schemas.agent import TaskReport
from tests.workers.fake_portal import FakePortal, make_spec
from tests.workers.machines import Machine, eventually
from tests.workers.node_agent.packages import make_source, make_wheel
from tests.workers.node_agent.test_environments import add_environment

CODE = "import lighthouse, harbour\nprint(lighthouse.version, harbour.version)"
# A build that looks for a file of the node and for the archives of other builds.
SPY = """\
seen = []
for path in [data / "token", *data.glob("project-environments/other/*/*.tmp/archives/*/*")]:
    try:
        seen.append(str(path.read_bytes()))
    except OSError:
        pass
files["harbour.py"] = f"version = {VERSION!r}\\nseen = {seen!r}\\n"
"""


@pytest.fixture
def node(make_machine: Callable[..., Machine], tmp_path: Path) -> Machine:
    """A node that has no index of packages."""
    tmp_path.chmod(0o755)
    machine = make_machine()
    machine.environment = {"PIP_NO_INDEX": "1"}
    return machine.start().connected()


def address_of(portal: FakePortal, path: Path, content: bytes | None = None) -> str:
    """Store an archive in the portal, and return how canonical requirements name it."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    portal.state.archives[digest] = path.read_bytes() if content is None else content
    return f"file:{path.name}#sha256={digest}"


def run(
    portal: FakePortal, name: str, requirements: Iterable[str], code: str = CODE
) -> tuple[TaskReport, str]:
    """Run a script in an environment to its end, and return that and the log of the build."""
    digest = add_environment(portal, "\n".join(requirements))
    snapshot = portal.state.add_snapshot({"a.py": code})
    spec = make_spec(
        *("python", "a.py"),
        snapshot=snapshot,
        environment=digest,
        persistent_key=f"mallory/{name}",
    )
    key = portal.state.want(name, spec)
    end = eventually(partial(portal.state.end_of, key), within_s=180)
    reports = portal.state.environment_reports.get(digest, [])
    return end, "".join(report.log for report in reports)


def test_a_wheel_and_a_source_of_the_code_are_installed(
    portal: FakePortal, node: Machine, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path, "lighthouse", "1.0+local", requires="harbour")
    source = make_source(tmp_path, "harbour", "2.0", SPY)
    requirements = [
        f"--find-links {address_of(portal, source)}",
        f"lighthouse @ {address_of(portal, wheel)} ; python_version >= '3.8'",
        "harbour>=1 ; os_name == 'posix'",
    ]
    code = f"{CODE}\nprint(harbour.seen)"
    end, log = run(portal, "t1", requirements, code)
    assert end.reason == "completed", (end, log)
    assert end.log_tail.startswith("1.0+local 2.0\n[]"), end.log_tail
    assert "Fetching 2 archives of the code." in log
    assert "built for this project only" in log
    assert not list((node.data_dir / "environments").glob("*/attempt-*"))


@pytest.mark.thorough
def test_an_archive_that_arrives_changed_is_not_installed(
    portal: FakePortal, node: Machine, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path, "lighthouse", "1.0")
    address = address_of(portal, wheel, b"something else")
    end, log = run(portal, "t1", [f"lighthouse @ {address}"])
    assert end.reason == "environment_failed"
    assert "arrived damaged" in log
    missing = f"file:{wheel.name}#sha256={'0' * 64}"
    end, log = run(portal, "t2", [f"lighthouse @ {missing}"])
    assert end.reason == "environment_failed"
    assert f"the archive {wheel.name} could not be fetched" in log


@pytest.mark.thorough
def test_pip_installs_them_where_uv_cannot(
    portal: FakePortal, node: Machine, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path, "lighthouse", "1.0", requires="harbour")
    source = make_source(tmp_path, "harbour", "2.0")
    requirements = [
        "--pre",
        f"--find-links {address_of(portal, source)}",
        f"lighthouse @ {address_of(portal, wheel)}",
    ]
    end, log = run(portal, "t1", requirements)
    assert end.reason == "completed", (end, log)
    assert end.log_tail.startswith("1.0 2.0")
