"""Environments of conda on a node, from a real channel on loopback with a Python that runs."""

import hashlib
import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipway.requirement_files.conda_packages import CondaEnvironment, archive_of
from slipway.schemas.agent import EnvironmentSpec, TaskReport
from tests.conda_channel import (
    PLACEHOLDER,
    SUBDIR,
    VERSION,
    Channel,
    Package,
    python_archive,
    python_package,
    running_channel,
)
from tests.live import ROOT
from tests.workers.fake_portal import FakePortal, make_spec
from tests.workers.machines import Machine, eventually
from tests.workers.node_agent.packages import make_wheel
from workers.node_agent.folders import NodeFolders

pytestmark = pytest.mark.thorough
TOOL = f"#!{PLACEHOLDER}/bin/python\nimport greeting\nprint('tool says', greeting.TEXT)\n"
GREETING = Package(
    "greeting",
    "2.0",
    noarch=True,
    depends=["python >=3.8"],
    files={
        "site-packages/greeting.py": b"TEXT = 'hello'\n",
        "site-packages/greeting-2.0.dist-info/METADATA": (
            b"Metadata-Version: 2.1\nName: greeting\nVersion: 2.0\n"
        ),
    },
)
TOOLS = Package(
    "tools",
    depends=["greeting"],
    files={
        "bin/say": TOOL.encode(),
        "bin/.tools-post-link.sh": b'#!/bin/sh\ntouch "$PREFIX/post-link-ran"\n',
    },
    executables=["bin/say", "bin/.tools-post-link.sh"],
    prefixed=["bin/say"],
    is_new_format=False,
)
SCRIPT = """
import greeting, os, subprocess, sys
print(greeting.TEXT, sys.prefix, os.environ["STAGE"], os.path.exists(sys.prefix + "/post-link-ran"))
print(subprocess.run(["say"], capture_output=True, text=True).stdout)
import slipway
print("sdk", slipway.__name__, os.environ["CONDA_PREFIX"] == sys.prefix)
"""

ATTACK = """
import os
changed = 0
for root, folders, names in os.walk({folder!r}):
    for name in names:
        path = os.path.join(root, name)
        for change in (lambda: os.chmod(path, 0o666), lambda: open(path, "ab").close(),
                       lambda: os.unlink(path), lambda: os.rename(path, path + "x")):
            try:
                change()
                changed += 1
            except OSError:
                pass
try:
    open({folder!r} + "/new", "w").close()
    changed += 1
except OSError:
    pass
print("changed", changed)
"""


@pytest.fixture
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Channel]:
    """A channel with a Python, a package for any Python and one with a script."""
    with running_channel(tmp_path_factory.mktemp("channel") / "main") as channel:
        channel.add_archive(python_package(), python_archive())
        channel.add(GREETING, TOOLS, Package("needy", depends=["greeting >=3"]))
        channel.add(Package("lonely"))
        yield channel


@pytest.fixture(params=["auto", "shared"])
def node(make_machine: Callable[..., Machine], request: pytest.FixtureRequest) -> Machine:
    """A node that has no indexes for pip, in a sandbox, and confined by Landlock alone."""
    machine = make_machine("--isolation", request.param)
    machine.environment = {"PIP_NO_INDEX": "1"}
    return machine.start().connected()


def submit(
    portal: FakePortal,
    name: str,
    environment: CondaEnvironment,
    *,
    locked: str = "",
    pip: str = "",
    project: str = "p1",
    script: str = SCRIPT,
) -> tuple[str, Callable[[], TaskReport | None]]:
    """Want a task in an environment. Returns its digest, and a function for the end of the task."""
    digest = hashlib.sha256(f"{name}{environment.text}{locked}".encode()).hexdigest()
    portal.state.environments[digest] = EnvironmentSpec(
        digest=digest,
        requirements=pip,
        python="",
        conda=environment.text,
        conda_locked=locked,
    )
    snapshot = portal.state.add_snapshot({"a.py": script})
    key = portal.state.want(
        name,
        make_spec(
            "python",
            "a.py",
            snapshot=snapshot,
            environment=digest,
            persistent_key=f"{project}/{name}",
        ),
    )
    return digest, lambda: portal.state.end_of(key)


def refused(portal: FakePortal, name: str, environment: CondaEnvironment) -> tuple[str, str]:
    """Return the reason of a task whose environment cannot be built, and the log of the build."""
    digest, end_of = submit(portal, name, environment)
    end = eventually(end_of, within_s=120)
    assert end.reason == "environment_failed", end
    reports = portal.state.environment_reports[digest]
    eventually(lambda: reports and reports[-1].state == "failed")
    return end.message, "".join(report.log for report in reports)


def test_a_task_runs_in_packages_of_a_channel(
    portal: FakePortal, node: Machine, channel: Channel
) -> None:
    environment = CondaEnvironment(
        (channel.url,), (f"python={VERSION}", "tools"), variables={"STAGE": "train"}
    )
    digest, end_of = submit(portal, "t1", environment)
    end = eventually(end_of, within_s=120)
    log = "".join(report.log for report in portal.state.environment_reports[digest])
    assert end.reason == "completed", (end, log)
    (home,) = NodeFolders(node.data_dir).project_environments.glob("p1/*")
    (attempt,) = home.glob("attempt-????????")
    assert f"hello {attempt} train False" in end.log_tail
    assert "tool says hello" in end.log_tail
    assert "sdk slipway True" in end.log_tail
    reports = portal.state.environment_reports[digest]
    eventually(lambda: reports[-1].state == "ready")
    assert "+ tools 1.0 0" in log
    lines = reports[-1].locked.splitlines()
    assert lines[:2] == [f"# platform: {SUBDIR}", "@EXPLICIT"]
    assert lines[3] == f"{channel.address(TOOLS)}#sha256:{channel.sha256(TOOLS)}"
    # Another node installs the same, even if the channel has something newer by now.
    newer = Package("tools", "2.0", depends=["greeting"])
    channel.add(newer)
    digest, end_of = submit(portal, "t2", environment, locked=reports[-1].locked)
    end = eventually(end_of, within_s=120)
    log = "".join(report.log for report in portal.state.environment_reports[digest])
    assert end.reason == "completed", (end, log)
    assert "+ tools 1.0 0" in log
    assert "solve" not in log


def test_packages_of_pip_are_installed_beside(
    portal: FakePortal, make_machine: Callable[..., Machine], channel: Channel, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    make_wheel(tmp_path, "lighthouse", "1.0")
    machine = make_machine("--readable", str(tmp_path))
    machine.environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    machine.start().connected()
    environment = CondaEnvironment(
        (channel.url,), ("python", "tools=1.0"), variables={"STAGE": "x"}
    )
    digest, end_of = submit(portal, "t1", environment, pip="lighthouse\n")
    end = eventually(end_of, within_s=120)
    reports = portal.state.environment_reports[digest]
    log = "".join(report.log for report in reports)
    assert end.reason == "completed", log
    assert "+ lighthouse==1.0" in log
    eventually(lambda: reports[-1].state == "ready")
    assert reports[-1].locked.splitlines()[-1] == "lighthouse==1.0"
    (home,) = NodeFolders(machine.data_dir).project_environments.glob("p1/*")
    (installed,) = home.glob(f"attempt-*/lib/python{VERSION}/site-packages/lighthouse.py")
    assert installed.stat().st_nlink == 1


def test_what_cannot_be_solved_is_explained_in_the_words_of_the_solver(
    portal: FakePortal, node: Machine, channel: Channel
) -> None:
    urls = (channel.url,)
    detail, log = refused(portal, "t1", CondaEnvironment(urls, ("python", "needy")))
    sentence = "greeting >=3, for which no candidates were found"
    assert sentence in log
    assert sentence in detail
    detail, log = refused(portal, "t2", CondaEnvironment(urls, ("python", "nowhere")))
    assert "No candidates were found for nowhere" in detail
    detail, log = refused(portal, "t3", CondaEnvironment((f"{channel.url}/other",), ("python",)))
    assert f"'noarch' in channel '{channel.url}/other/'" in detail
    detail, log = refused(portal, "t4", CondaEnvironment(urls, ("lonely",)))
    assert "it has no Python; add one to dependencies" in detail


def test_builds_for_cuda_are_chosen_where_there_is_a_driver(
    channel: Channel, tmp_path: Path
) -> None:
    script = ROOT / "workers" / "node_agent" / "conda_script.py"
    channel.add(Package("fast", depends=["__cuda >=12.1"]))
    for cuda, is_solved in (("", False), ("11.8", False), ("12.8", True)):
        request = {
            "scratch": str(tmp_path),
            "channels": [channel.url],
            "specs": ["fast"],
            "cuda": cuda,
        }
        (tmp_path / "request.json").write_text(json.dumps(request))
        command = [sys.executable, "-I", str(script), str(tmp_path / "request.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == (0 if is_solved else 1), done.stdout + done.stderr
        assert is_solved or "__cuda" in done.stdout


def test_locked_packages_have_to_have_their_digest(
    portal: FakePortal, node: Machine, channel: Channel
) -> None:
    python = python_package()
    exact = archive_of(f"{channel.address(python)}#{channel.sha256(python)}")
    wrong = archive_of(f"{channel.address(GREETING)}#{'0' * 64}")
    right = archive_of(f"{channel.address(GREETING)}#{channel.sha256(GREETING)}")
    urls = (channel.url,)
    detail, _ = refused(portal, "t1", CondaEnvironment(urls, archives={SUBDIR: (exact, wrong)}))
    assert "hash mismatch" in detail
    assert "0" * 64 in detail
    other = "linux-aarch64" if SUBDIR == "linux-64" else "linux-64"
    detail, _ = refused(portal, "t2", CondaEnvironment(urls, archives={other: (exact, right)}))
    assert f"its packages are locked for {other}, and this node is {SUBDIR}" in detail
    elsewhere = archive_of(f"http://127.0.0.1:9/noarch/greeting-2.0-0.conda#{'0' * 64}")
    detail, _ = refused(portal, "t3", CondaEnvironment(urls, archives={SUBDIR: (exact, elsewhere)}))
    assert "is in none of the channels of the environment" in detail
    tools = archive_of(f"{channel.address(TOOLS)}#{channel.sha256(TOOLS)}")
    environment = CondaEnvironment(
        urls, archives={SUBDIR: (exact, right, tools)}, variables={"STAGE": "exact"}
    )
    _, end_of = submit(portal, "t4", environment)
    end = eventually(end_of, within_s=120)
    assert end.reason == "completed", end
    assert "exact False" in end.log_tail


def test_packages_write_nothing_outside_of_the_environment(
    portal: FakePortal, node: Machine, channel: Channel, tmp_path: Path
) -> None:
    python = python_package()
    # A file of another package in the cache of the step, which is there when this one is linked.
    climbing = Package(
        "climbing",
        depends=["python"],
        files={"lib/own.txt": b"own"},
        listed={f"../{python.file_name.removesuffix('.conda')}/lib/python{VERSION}/os.py": b""},
    )
    link = Package("link", depends=["python"], links={"lib/outside": "/etc/passwd"})
    through = Package(
        "through", depends=["python"], links={"lib/out": str(tmp_path)}, files={"lib/out/x": b"x"}
    )
    channel.add(climbing, link, through)
    # rattler itself follows such a path, and the boundary of the step stops it.
    reasons = {
        "climbing": r"Read-only file system|Permission denied",
        "link": "'lib/outside' is a link out of the environment",
        "through": "failed to fetch through-1.0",
    }
    for name, reason in reasons.items():
        detail, _ = refused(portal, name, CondaEnvironment((channel.url,), ("python", name)))
        assert re.search(reason, detail), (name, detail)
    assert not [*tmp_path.iterdir()]
    homes = [*NodeFolders(node.data_dir).project_environments.glob("p1/*")]
    assert homes
    for home in homes:
        assert {path.name for path in home.iterdir()} <= {"lock"}


def test_archives_are_downloaded_once_and_user_code_cannot_change_them(
    portal: FakePortal, node: Machine, channel: Channel
) -> None:
    urls, python = (channel.url,), python_package()
    environment = CondaEnvironment(urls, ("python", "greeting"), variables={"STAGE": "first"})
    _, end_of = submit(portal, "t1", environment)
    eventually(end_of, within_s=120)
    address = f"/{python.subdir}/{python.file_name}"
    assert channel.requests.count(address) >= 1
    archives = NodeFolders(node.data_dir).conda_archives
    (stored,) = archives.glob(f"*/{python.file_name}")
    assert stored.parent.name == channel.sha256(python)
    assert stat.S_IMODE(stored.stat().st_mode) == 0o444
    # Another environment, for another project, has them from the node.
    channel.requests.clear()
    other = CondaEnvironment(urls, ("python", "tools"), variables={"STAGE": "second"})
    digest, end_of = submit(portal, "t2", other, project="p2")
    end = eventually(end_of, within_s=120)
    log = "".join(report.log for report in portal.state.environment_reports[digest])
    assert end.reason == "completed", (end, log)
    assert "2 of 3 packages are on this node already." in log
    downloads = [path for path in channel.requests if not path.endswith("repodata.json")]
    assert {*downloads} == {f"/{TOOLS.subdir}/{TOOLS.file_name}"}
    (meta,) = NodeFolders(node.data_dir).project_environments.glob(
        "p2/*/attempt-????????/conda-meta/python-*.json"
    )
    assert json.loads(meta.read_text())["url"] == channel.address(python)
    # A file that has changed on the disk is downloaded again.
    stored.chmod(0o644)
    stored.write_bytes(b"changed")
    channel.requests.clear()
    third = CondaEnvironment(urls, ("python", "greeting"), variables={"STAGE": "third"})
    _, end_of = submit(portal, "t3", third, script="print(1)")
    assert eventually(end_of, within_s=120).reason == "completed"
    assert address in channel.requests
    before = {path: path.read_bytes() for path in archives.rglob("*") if path.is_file()}
    attack = ATTACK.format(folder=str(archives))
    _, end_of = submit(portal, "t4", third, script=attack)
    end = eventually(end_of, within_s=120)
    assert end.reason == "completed", end
    assert "changed 0" in end.log_tail, end.log_tail
    assert {path: path.read_bytes() for path in archives.rglob("*") if path.is_file()} == before
