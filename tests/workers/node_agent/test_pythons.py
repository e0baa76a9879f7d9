"""Environments in another Python than the agent's, with what the SDK needs there."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.workers.fake_portal import FakePortal, make_spec
from tests.workers.machines import Machine, eventually
from tests.workers.node_agent.packages import add_to_index, make_wheel
from tests.workers.node_agent.test_environments import OPTION, add_environment, run_in
from workers.node_agent.interpreters import find_interpreters
from workers.node_agent.sdk_packages import SdkPackages


def other_python() -> tuple[Path, str]:
    """Another Python of this machine that the SDK supports, where pyenv keeps it: root, version."""
    versions = Path.home() / ".pyenv" / "versions"
    for path in sorted(versions.glob("3.1[2-9].*/bin/python3")):
        major, minor, *_ = path.parts[-3].split(".")
        if (int(major), int(minor)) != sys.version_info[:2]:
            return versions.parent, f"{major}.{minor}"
    pytest.skip("this machine has no other Python in pyenv")


@pytest.mark.thorough
def test_an_environment_has_the_python_that_it_names(
    portal: FakePortal, make_machine: Callable[..., Machine], tmp_path: Path
) -> None:
    root, python = other_python()
    tmp_path.chmod(0o755)
    make_wheel(tmp_path, "lighthouse", "1.0")
    for line in SdkPackages.requirements_of_sdk().splitlines():
        name, _, version = line.partition("==")
        make_wheel(tmp_path, name.replace("-", "_"), version)
    # As pyenv's shims answer for a version that is not selected.
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / f"python{python}").write_text("#!/bin/sh\nexit 127\n")
    (shims / f"python{python}").chmod(0o755)
    machine = make_machine("--readable", str(tmp_path))
    machine.environment = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PYENV_ROOT": str(root),
        "PATH": f"{shims}:/usr/bin:/bin",
    }
    machine.start().connected()
    usual = "{}.{}".format(*sys.version_info)
    assert {usual, python} <= {*portal.state.heartbeats[-1].facts.pythons}
    digest = add_environment(portal, "lighthouse==1.0\n", python=python)
    code = (
        "import lighthouse, slipway.job, sys\n"
        "print(lighthouse.version, '%d.%d' % sys.version_info[:2])\n"
    )
    snapshot = portal.state.add_snapshot({"a.py": code})
    spec = make_spec("python", "a.py", snapshot=snapshot, environment=digest)
    key = portal.state.want("t1", spec)
    end = eventually(lambda: portal.state.end_of(key), within_s=60)
    assert end.reason == "completed", end
    assert end.log_tail == f"1.0 {python}\n"
    # The SDK finds its packages in that Python, too: compiled ones fit one minor version.
    tag = f"cpython-{python.replace('.', '')}"
    bundled = machine.data_dir / "sdk" / "bundled" / tag
    assert (bundled / "versions.txt").read_text() == SdkPackages.requirements_of_sdk()
    assert (bundled / "httpx.py").stat().st_mode & 0o004


def test_the_packages_of_the_sdk_come_from_no_index_of_a_project(
    portal: FakePortal, make_machine: Callable[..., Machine], tmp_path: Path
) -> None:
    """They are for all projects of the node."""
    root, python = other_python()
    node, project = tmp_path / "node", tmp_path / "project"
    node.mkdir()
    add_to_index(project, make_wheel(tmp_path, "lighthouse", "1.0"))
    for line in SdkPackages.requirements_of_sdk().splitlines():
        name, _, version = line.partition("==")
        wheel = make_wheel(tmp_path, name.replace("-", "_"), version)
        add_to_index(project, wheel)
        (project / wheel.name.partition("-")[0]).rename(project / name.lower().replace("_", "-"))
    machine = make_machine()
    machine.environment = {
        "PIP_" + OPTION.upper().replace("-", "_"): f"file://{node}",
        "PYENV_ROOT": str(root),
    }
    machine.start().connected()
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(project))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"--extra-{OPTION} http://127.0.0.1:{server.server_port}"
    digest = add_environment(portal, f"{address}\nlighthouse\n", python=python)
    try:
        end = eventually(partial(portal.state.end_of, run_in(portal, digest, "t1")), within_s=60)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert end.reason == "completed", end
    text = "".join(report.log for report in portal.state.environment_reports[digest])
    assert f"`import slipway` fails in Python {python}" in text, text
    assert not list((machine.data_dir / "sdk" / "bundled").glob("*/httpx.py"))


@pytest.mark.thorough
def test_a_build_says_that_the_sdk_lacks_packages_in_another_python(
    portal: FakePortal, make_machine: Callable[..., Machine], tmp_path: Path
) -> None:
    root, python = other_python()
    tmp_path.chmod(0o755)
    make_wheel(tmp_path, "lighthouse", "1.0")
    machine = make_machine("--readable", str(tmp_path))
    machine.environment = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PYENV_ROOT": str(root),
    }
    machine.start().connected()
    digest = add_environment(portal, "lighthouse==1.0\n", python=python)
    key = run_in(portal, digest, "t1")
    assert eventually(lambda: portal.state.end_of(key), within_s=60).reason == "completed"
    text = "".join(report.log for report in portal.state.environment_reports[digest])
    assert f"`import slipway` fails in Python {python} unless the requirements name httpx" in text
    assert not list((machine.data_dir / "sdk" / "bundled").glob(".*"))


def test_folders_that_cannot_be_read_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root nothing is forbidden, so the name of the folder is one that no system accepts."""
    monkeypatch.setenv("PATH", f"/{'x' * 300}:{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", f"/{'x' * 300}")
    assert asyncio.run(find_interpreters(sys.executable))
