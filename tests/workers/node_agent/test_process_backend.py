"""The back end `process` keeps the promises of all back ends, at each level of isolation."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workers.node_agent.backend_contract import BENCH, BackendContract, Bench, node_folders
from workers.launcher.launch import StateFolder
from workers.node_agent.backends.base import Backend, LaunchSpec
from workers.node_agent.backends.process import ProcessBackend
from workers.node_agent.errors import AgentError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.isolation import Isolation
from workers.node_agent.settings import AgentSettings


def make_settings(data_dir: Path, **changes: object) -> AgentSettings:
    """Settings of a node; say what is different."""
    settings = AgentSettings(
        url="http://127.0.0.1:9",
        data_dir=data_dir,
        token_file=None,
        name=BENCH,
        python=Path(sys.executable),
        labels={},
    )
    return replace(settings, **changes)  # type: ignore[arg-type]


class TestProcessBackend(BackendContract):
    """All promises, through shims on this machine."""

    @pytest.fixture(
        params=[
            *("namespaces", "users"),
            pytest.param("shared", marks=pytest.mark.thorough),
            pytest.param("namespaces without control groups", marks=pytest.mark.thorough),
        ]
    )
    def bench(self, request: pytest.FixtureRequest) -> Iterator[Bench]:
        data_dir = Path(tempfile.mkdtemp(prefix="sl-"))
        folders = node_folders(data_dir)
        self.level, _, without = request.param.partition(" ")
        self.use_cgroups = not without
        try:
            new_bench = Bench(self.make(folders), folders)
        except AgentError as error:
            shutil.rmtree(data_dir)
            pytest.skip(str(error))
        yield new_bench
        for handle in new_bench.handles:
            self.leave_nothing(new_bench, handle)
        shutil.rmtree(data_dir)

    def make(self, folders: NodeFolders) -> Backend:
        settings = make_settings(folders.root, cgroups=self.use_cgroups, isolation=self.level)
        return ProcessBackend(settings, folders, Isolation.measure(settings, folders))

    def leave_nothing(self, bench: Bench, handle: str) -> None:
        assert isinstance(bench.backend, ProcessBackend)
        bench.backend.remove_now(handle)

    def kill_supervisor(self, bench: Bench, order: LaunchSpec, handle: str) -> None:
        shim = StateFolder(order.folder.state).shim()
        assert shim is not None
        os.kill(shim.pid, signal.SIGKILL)

    def renewed(self, bench: Bench) -> Backend:
        return self.make(bench.folders)


def test_a_machine_that_permits_namespaces_is_never_weaker(tmp_path: Path) -> None:
    """The tests above skip a level that is not available, so one says that it has to be."""
    own_user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    trial = ["unshare", *own_user, "--mount", "--pid", "--ipc", "--fork", "--mount-proc", "true"]
    if shutil.which("unshare") is None or subprocess.run(trial, check=False).returncode:
        pytest.skip("this machine permits no namespaces")
    folders = node_folders(tmp_path)
    isolation = Isolation.measure(make_settings(tmp_path), folders)
    assert isolation.level == "namespaces", isolation.detail
    assert {"mount", "pid", "ipc", "network", "seccomp"} <= set(isolation.features)
