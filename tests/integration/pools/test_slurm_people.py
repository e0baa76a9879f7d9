"""Jobs of a pool belong to the person who submits them: uid and gid, by slurmrestd and by sudo."""

import os
import pwd
import secrets
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from portal.compute.adapters.engines.slurm.tokens import SlurmKeys
from tests.integration.pools.jobs import TINY, job_body, log_of, wait_for_state
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for
from tests.slurm_cluster import SlurmCluster
from tests.slurm_rest import reason_without_rest, running_slurm_with_rest, unix_accounts

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(reason_without_rest()), reason=reason_without_rest()),
]
_SCRIPT = """
import os
print("runs as", os.getuid(), os.getgid(), sorted(os.getgroups()), os.path.expanduser("~"))
"""
# Changes the user as sudo does, for the two commands that a site allows.
_SUDO = """#!/bin/sh
[ "$1 $2 $4" = "-n -u --" ] || exit 2
case "$5" in
sbatch | scancel) user=$3 && shift 4 &&
    exec setpriv --reuid="$user" --regid="$user" --init-groups "$@" ;;
esac
echo "sudo: a password is required" >&2
exit 1
"""
MARK = secrets.token_hex(3)
ALICE, SERVER, READER = (f"slw-{name}-{MARK}" for name in ("alice", "rest", "reader"))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that other accounts reach, and the accounts."""
    with (
        tempfile.TemporaryDirectory(prefix="slurm-people-") as name,
        unix_accounts(ALICE, SERVER, READER),
    ):
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def slipway(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A Slipway whose sudo changes to people of this machine, with a key for Slurm."""
    (folder / "sudo").write_text(_SUDO, "utf-8")
    (folder / "sudo").chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    with running_slipway(tmp_path_factory.mktemp("slipway"), PATH=path) as portal:
        created = portal.installation.manage("slurm_key", "create")
        assert created.returncode == 0, created.stderr
        with portal.client("root") as root:
            root.post("/projects", json={"name": "Vision"}).raise_for_status()
            root.post("/tiers", json=TINY).raise_for_status()
        yield portal


@pytest.fixture(scope="module")
def cluster(folder: Path, slipway: RunningPortal) -> Iterator[tuple[SlurmCluster, str]]:
    """A cluster that trusts this Slipway, and the address of its slurmrestd."""
    keys = SlurmKeys(slipway.installation.data_dir / "keys" / "slurm")
    published = slipway.installation.manage("slurm_key", "jwks")
    assert keys.signing() in published.stdout
    assert "PRIVATE" not in published.stdout
    people = (ALICE, READER)
    with running_slurm_with_rest(folder / "cluster", keys, server=SERVER, people=people) as running:
        yield running


def link(root: httpx.Client, slurm: SlurmCluster, pool: str) -> None:
    """Prove the account of alice as she does: with a command on a login node."""
    command = root.post(f"/pools/{pool}/account", json={}).raise_for_status().json()["command"]
    person = pwd.getpwnam(ALICE)
    subprocess.run(
        shlex.split(command),
        env=slurm.environment,
        user=person.pw_uid,
        group=person.pw_gid,
        extra_groups=[],
        cwd=person.pw_dir,
        check=True,
        capture_output=True,
    )
    wait_for(
        lambda: root.get(f"/pools/{pool}/account").json()["name"] == ALICE, "link", within_s=90
    )


@pytest.mark.parametrize("transport", ["slurmrestd", "commands"])
def test_a_job_runs_as_the_person_who_submits_it(
    slipway: RunningPortal, cluster: tuple[SlurmCluster, str], transport: str
) -> None:
    slurm, url = cluster
    settings: dict[str, object] = {"slurm_conf": str(slurm.conf)}
    if transport == "slurmrestd":
        settings = {"rest_url": url, "user": READER}
    settings |= {"partition": "main", "as_person": True, "portal_url": slipway.url}
    pool = {"name": transport, "engine": "slurm", "settings": settings}
    with slipway.client("root") as root:
        answer = root.post("/pools", json=pool)
        assert answer.is_success, answer.text
        link(root, slurm, transport)
        body = job_body(root, _SCRIPT, pool=transport)
        job = root.post("/projects/vision/jobs", json=body).raise_for_status().json()
        job_id = job["workload"]["id"]
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped")
        assert ended["state"] == "succeeded", ended
        person = pwd.getpwnam(ALICE)
        expected = f"runs as {person.pw_uid} {person.pw_gid} [{person.pw_gid}]"
        wait_for(lambda: expected in log_of(root, job_id), expected, within_s=30)
        owners = slurm.run(
            *("sacct", "--noheader", "--parsable2", "--allocations", "--allusers"),
            "--format=JobName,UID,GID",
        )
        names = {line.split("|")[0]: line.split("|")[1:] for line in owners.splitlines()}
        owners_of_jobs = [ids for name, ids in names.items() if name.startswith("sw-")]
        assert owners_of_jobs
        assert all(ids == [str(person.pw_uid), str(person.pw_gid)] for ids in owners_of_jobs)
