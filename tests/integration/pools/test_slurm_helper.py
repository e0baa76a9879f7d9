"""The helper of a person on a login node: `slipway pool helper` with a real Slurm.

Where the tests are root it runs as a second Unix account, otherwise as that of the tests.
"""

import getpass
import os
import pwd
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.pools.jobs import (
    JOBS,
    TINY,
    job_body,
    log_of,
    wait_for_state,
    workload_of,
)
from tests.portals import RunningPortal, running_slipway
from tests.processes import ROOT, Program, wait_for
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm
from tests.slurm_rest import unix_accounts

pytestmark = [
    pytest.mark.integration,
    pytest.mark.thorough,
    pytest.mark.skipif(
        bool(missing_programs()), reason=f"Slurm is not installed: {missing_programs()}"
    ),
]
IS_ROOT = os.getuid() == 0
NAME = f"slw-helper-{secrets.token_hex(3)}" if IS_ROOT else getpass.getuser()
_SCRIPT = "import os; print('runs as', os.getuid())"
_LONG = "import time; print('began', flush=True); time.sleep(600)"
_SHORT = "import time; print('began', flush=True); time.sleep(20)"
# Kills its helper as soon as Slurm has the job, while the file is there.
_SBATCH = """#!/bin/sh
{real} "$@" || exit
[ ! -e {mark} ] || kill -9 "$PPID"
"""


@dataclass
class LoginNode:
    """A login node: where alice of Slipway runs her helper as another account."""

    folder: Path
    slurm: SlurmCluster
    slipway: RunningPortal
    programs: list[Program] = field(default_factory=list)

    @property
    def deadly(self) -> Path:
        """The file that kills the helper after its next sbatch."""
        return self.folder / "deadly"

    def start(self) -> Program:
        """Start a helper."""
        person = pwd.getpwnam(NAME)
        change = [
            *("setpriv", f"--reuid={person.pw_uid}", f"--regid={person.pw_gid}"),
            *("--clear-groups", "--"),
        ]
        environment = self.slurm.environment | {
            "PATH": f"{self.folder / 'bin'}:{self.slurm.environment['PATH']}",
            "HOME": person.pw_dir,
            "PYTHONPATH": str(ROOT / "platform"),
            "SLIPWAY_URL": self.slipway.url,
            "SLIPWAY_TOKEN": self.slipway.tokens["alice"],
        }
        argv = [sys.executable, "-m", "slipway", "pool", "helper", "login"]
        program = Program(
            [*(change if IS_ROOT else []), *argv],
            env=environment,
            output=self.folder / f"helper-{len(self.programs)}.out",
        )
        self.programs.append(program)
        return program

    def end(self) -> None:
        """End all helpers."""
        for program in self.programs:
            program.end()

    def jobs(self) -> set[str]:
        """Return the numbers of all jobs that Slurm knows, and check whose they are."""
        lines = self.slurm.run("squeue", "--noheader", "--states=all", "--format=%A %u").split("\n")
        pairs = [line.split() for line in lines if line.strip()]
        assert all(owner == NAME for _, owner in pairs), pairs
        return {number for number, _ in pairs}


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginNode]:
    """A cluster, a Slipway that knows no command of it, and a linked account of alice."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-helper-")))
        folder.chmod(0o755)
        if IS_ROOT:
            stack.enter_context(unix_accounts(NAME))
        slurm = stack.enter_context(running_slurm(folder / "cluster"))
        (folder / "bin").mkdir()
        sbatch = folder / "bin" / "sbatch"
        sbatch.write_text(
            _SBATCH.format(real=shutil.which("sbatch"), mark=folder / "deadly"), "utf-8"
        )
        sbatch.chmod(0o755)
        slipway = stack.enter_context(running_slipway(tmp_path_factory.mktemp("slipway")))
        node = LoginNode(folder, slurm, slipway)
        stack.callback(node.end)
        settings = {"helper": True, "partition": "main", "portal_url": slipway.url}
        with slipway.client("root") as root, slipway.client("alice") as alice:
            root.post("/tiers", json=TINY).raise_for_status()
            pool = {"name": "login", "engine": "slurm", "settings": settings}
            answer = root.post("/pools", json=pool)
            assert answer.is_success, answer.text
            alice.post("/projects", json={"name": "Vision"}).raise_for_status()
            node.start()
            wait_for(
                lambda: alice.get("/pools/login/account").json()["name"] == NAME,
                "link",
                within_s=120,
            )
        yield node


@pytest.fixture
def helper(login: LoginNode) -> Program:
    """A helper that runs."""
    program = login.programs[-1]
    return program if program.process.poll() is None else login.start()


def _submit(login: LoginNode, script: str = _SCRIPT) -> str:
    with login.slipway.client("alice") as alice:
        answer = alice.post(JOBS, json=job_body(alice, script, pool="login"))
        assert answer.is_success, answer.text
        job_id: str = answer.json()["workload"]["id"]
        return job_id


def test_a_job_runs_as_its_person_without_a_command_of_slipway(
    login: LoginNode, helper: Program
) -> None:
    job_id = _submit(login)
    with login.slipway.client("alice") as alice:
        ended = wait_for_state(alice, job_id, "succeeded", "failed", "stopped")
        assert ended["state"] == "succeeded", (ended, helper.text())
        expected = f"runs as {pwd.getpwnam(NAME).pw_uid}"
        wait_for(lambda: expected in log_of(alice, job_id), expected, within_s=30)
    assert len(login.jobs()) == 2  # with the proof
    assert "Submitted job" in helper.text()


def test_a_cancelled_job_is_cancelled_in_slurm(login: LoginNode, helper: Program) -> None:
    job_id = _submit(login, _LONG)
    with login.slipway.client("alice") as alice:
        wait_for_state(alice, job_id, "running")
        alice.post(f"{JOBS}/{job_id}/cancel", json={}).raise_for_status()
        wait_for_state(alice, job_id, "cancelled", "stopped")
    running = ("squeue", "--noheader", "--states=PENDING,RUNNING", "--format=%A")
    wait_for(lambda: not login.slurm.run(*running).strip(), "the end in Slurm", within_s=90)


def test_a_helper_that_dies_before_its_report_causes_no_second_job(
    login: LoginNode, helper: Program
) -> None:
    known = login.jobs()
    login.deadly.touch()
    job_id = _submit(login)
    assert helper.wait(60) == -signal.SIGKILL
    login.deadly.unlink()
    assert len(login.jobs() - known) == 1
    login.start()
    with login.slipway.client("alice") as alice:
        ended = wait_for_state(alice, job_id, "succeeded", "failed", "stopped")
        assert ended["state"] == "succeeded", ended
    assert len(login.jobs() - known) == 1


def test_work_waits_for_a_helper_that_is_away_and_what_runs_goes_on(
    login: LoginNode, helper: Program
) -> None:
    with login.slipway.client("alice") as alice:
        running = _submit(login, _SHORT)
        wait_for_state(alice, running, "running")
        wait_for(lambda: "began" in log_of(alice, running), "first line", within_s=60)
        helper.signal(signal.SIGINT)
        helper.wait(30)
        waiting = _submit(login)
        ended = wait_for_state(alice, running, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "succeeded", ended
        reason = "is not running on the login node: start it with `slipway pool helper login`"
        wait_for(lambda: reason in workload_of(alice, waiting)["explanation"], reason, within_s=120)
        login.start()
        ended = wait_for_state(alice, waiting, "succeeded", "failed", "stopped")
        assert ended["state"] == "succeeded", ended


def test_two_helpers_of_a_person_submit_each_job_once(login: LoginNode, helper: Program) -> None:
    known = login.jobs()
    second = login.start()
    jobs = [_submit(login) for _ in range(4)]
    with login.slipway.client("alice") as alice:
        for job_id in jobs:
            ended = wait_for_state(alice, job_id, "succeeded", "failed", "stopped")
            assert ended["state"] == "succeeded", ended
    assert len(login.jobs() - known) == len(jobs)
    assert helper.process.poll() is None
    assert second.process.poll() is None
