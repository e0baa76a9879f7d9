"""The contract of engines, kept by local processes and by a real Slurm cluster."""

import getpass
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.compute.adapters.engines.local import LocalEngine
from portal.compute.adapters.engines.slurm.commands import SlurmEngine
from portal.compute.adapters.engines.slurm.settings import SlurmSettings
from portal.compute.engines import AllocationPhase, Engine, Owner
from tests.integration.pools.engine_contract import EngineContract, order_of, wait_for_phase
from tests.ports import free_ports
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm

pytestmark = pytest.mark.integration


def no_portal() -> str:
    """Return the address of a portal that does not exist."""
    return f"http://127.0.0.1:{free_ports(1)[0]}"


class TestLocalEngine(EngineContract):
    @pytest.fixture
    def engine(self, tmp_path: Path) -> Engine:
        """An engine with two places."""
        return LocalEngine(tmp_path, ("--url", no_portal()), 2)


@pytest.mark.skipif(
    bool(missing_programs()), reason=f"Slurm is not installed: {missing_programs()}"
)
class TestSlurmEngine(EngineContract):
    cluster: SlurmCluster

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        """A cluster of two nodes with one CPU each."""
        with running_slurm(tmp_path / "slurm", cpus=1) as cluster:
            settings = SlurmSettings(
                partition="main", slurm_conf=str(cluster.conf), folder=str(tmp_path / "nodes")
            )
            self.cluster = cluster
            yield SlurmEngine(settings, url=no_portal(), python=sys.executable)

    def test_the_owners_of_a_job_are_those_who_submitted_it(self, engine: Engine) -> None:
        assert engine.owners_of("slipway-link-1") == frozenset()
        self.cluster.run("sbatch", "--job-name=slipway-link-1", "--output=/dev/null", "--wrap=true")
        me = Owner(getpass.getuser(), os.getuid())
        assert engine.owners_of("slipway-link-1") == {me}
        assert engine.owners_of("slipway-link-2") == frozenset()

    def test_sudo_has_to_allow_the_commands_of_slurm_alone(
        self, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert isinstance(engine, SlurmEngine)
        (tmp_path / "sudo").write_text(_SUDO, "utf-8")
        (tmp_path / "sudo").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        settings = engine._settings.model_copy(update={"user": "vera"})
        as_vera = SlurmEngine(settings, url=no_portal(), python=sys.executable)
        handle = as_vera.submit(order_of())
        wait_for_phase(as_vera, handle, AllocationPhase.GRANTED)
        as_vera.stop(handle)
        wait_for_phase(as_vera, handle, AllocationPhase.ENDED)


# As a site's sudo that allows four commands and keeps SLURM_CONF.
_SUDO = """#!/bin/sh
[ "$1 $2 $3 $4" = "-n -u vera --" ] || exit 2
case "$5" in
sbatch | squeue | sacct | scancel) shift 4 && exec "$@" ;;
esac
echo "sudo: a password is required" >&2
exit 1
"""
