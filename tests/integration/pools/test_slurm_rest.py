"""The contract of engines, kept by slurmrestd with tokens of Slipway, for a second Unix account."""

import pwd
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from portal.compute.adapters.engines.slurm import tokens
from portal.compute.adapters.engines.slurm.rest import SlurmRestEngine
from portal.compute.adapters.engines.slurm.rest_api import SlurmRestApi
from portal.compute.adapters.engines.slurm.settings import SlurmSettings
from portal.compute.adapters.engines.slurm.tokens import SlurmKeys
from portal.compute.engines import AllocationOrder, AllocationPhase, Engine, EngineAway, Owner
from tests.integration.pools.engine_contract import EngineContract, order_of, wait_for_phase
from tests.ports import free_ports
from tests.processes import wait_for
from tests.slurm_cluster import SlurmCluster
from tests.slurm_rest import (
    reason_without_rest,
    running_slurm_with_rest,
    start_rest,
    unix_accounts,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(reason_without_rest()), reason=reason_without_rest()),
]


@dataclass
class RestCluster:
    """A cluster with slurmrestd, the keys that it trusts, and the accounts of two people."""

    slurm: SlurmCluster
    url: str
    keys: SlurmKeys
    folder: Path
    alice: str
    bob: str
    server: str

    def engine(self, *, user: str = "", keys: SlurmKeys | None = None) -> SlurmRestEngine:
        """Return an engine whose jobs belong to alice, or to another user."""
        settings = SlurmSettings(
            partition="main", rest_url=self.url, user=user or self.alice, folder="~/nodes"
        )
        return SlurmRestEngine(
            settings,
            SlurmRestApi(self.url, keys or self.keys),
            url=f"http://127.0.0.1:{free_ports(1)[0]}",
            python=sys.executable,
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[RestCluster]:
    """A cluster of two nodes with one CPU each. Other accounts have to reach its folder."""
    mark = secrets.token_hex(3)
    alice, bob, server = (f"slw-{name}-{mark}" for name in ("alice", "bob", "rest"))
    with (
        tempfile.TemporaryDirectory(prefix="slurm-rest-") as name,
        unix_accounts(alice, bob, server),
    ):
        folder = Path(name)
        folder.chmod(0o755)
        keys = SlurmKeys(folder / "keys")
        keys.create()
        with running_slurm_with_rest(
            folder / "cluster", keys, server=server, people=(alice, bob), cpus=1
        ) as (slurm, url):
            yield RestCluster(slurm, url, keys, folder, alice, bob, server)


class TestSlurmRestEngine(EngineContract):
    @pytest.fixture
    def engine(self, cluster: RestCluster) -> Iterator[Engine]:
        """The engine of alice, in a cluster that is idle again afterwards."""
        yield cluster.engine()
        wait_for(
            lambda: not cluster.slurm.run("squeue", "--noheader").strip(), "the end", within_s=90
        )

    def test_a_job_runs_as_its_account_with_its_uid_and_gid(
        self, engine: Engine, cluster: RestCluster
    ) -> None:
        order = order_of()
        handle = engine.submit(order)
        wait_for_phase(engine, handle, AllocationPhase.GRANTED)
        person = pwd.getpwnam(cluster.alice)
        assert engine.owners_of(order.name) == {Owner(cluster.alice, person.pw_uid)}
        log = Path(person.pw_dir) / "nodes" / f"{order.name}.log"
        wait_for(log.exists, "log", within_s=60)
        assert (log.stat().st_uid, log.stat().st_gid) == (person.pw_uid, person.pw_gid)
        shown = cluster.slurm.run("scontrol", "show", "job", handle)
        assert "Requeue=0" in shown
        assert "TimeLimit=00:05:00" in shown
        engine.stop(handle)

    def test_the_accounting_tells_the_usage_of_an_ended_job(
        self, engine: Engine, cluster: RestCluster
    ) -> None:
        assert isinstance(engine, SlurmRestEngine)
        handle = engine.submit(order_of(2))
        wait_for_phase(engine, handle, AllocationPhase.GRANTED)
        assert engine.usage([handle]) == {}
        engine.stop(handle)
        usage = wait_for(lambda: engine.usage([handle]).get(handle), "accounting", within_s=60)
        assert usage is not None
        elapsed, cpu = (
            cluster.slurm.run(
                *("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={handle}"),
                "--format=ElapsedRaw,CPUTimeRAW",
            )
            .strip()
            .split("|")
        )
        assert (usage.elapsed_s, usage.machines, usage.cpu_s) == (int(elapsed), 2, int(cpu))
        assert "cpu=2" in usage.resources

    def test_one_account_does_not_end_the_job_of_another(
        self, engine: Engine, cluster: RestCluster
    ) -> None:
        handle = engine.submit(order_of())
        with pytest.raises(EngineAway, match="permission denied"):
            engine.stop(handle, account=cluster.bob)
        engine.stop(handle)

    @pytest.mark.parametrize("account", ["root", "slurm", "daemon", "www-data", "a b", "-x", ""])
    def test_no_token_is_signed_for_an_account_of_the_system(
        self, engine: Engine, cluster: RestCluster, account: str
    ) -> None:
        with pytest.raises(ValueError, match="not"):
            cluster.keys.token(account)
        if account:
            with pytest.raises(EngineAway, match="Slipway signs no token"):
                engine.stop("1", account=account)

    def test_a_key_that_slurm_does_not_know_is_named(
        self, engine: Engine, cluster: RestCluster
    ) -> None:
        keys = SlurmKeys(cluster.folder / "other")
        kid = keys.create()
        with pytest.raises(EngineAway, match=f"install the present keys, with {kid}"):
            cluster.engine(keys=keys).submit(order_of())

    def test_an_expired_token_is_not_accepted(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tokens, "VALID_S", -60)
        with pytest.raises(EngineAway, match="compare the clocks"):
            engine.look(["1"])

    @pytest.mark.thorough
    def test_programs_of_slurm_that_are_away_cost_nothing(
        self, engine: Engine, cluster: RestCluster
    ) -> None:
        slurm, order = cluster.slurm, order_of()
        handle = engine.submit(order)
        wait_for_phase(engine, handle, AllocationPhase.GRANTED)
        port = int(cluster.url.rpartition(":")[2])
        slurm.programs.pop("slurmrestd").end()
        with pytest.raises(EngineAway, match="does not answer"):
            engine.look([handle])
        start_rest(slurm, port, cluster.server)
        slurm.programs["slurmctld"].signal(signal.SIGTERM)
        slurm.programs["slurmctld"].wait()
        started = time.monotonic()
        with pytest.raises(EngineAway, match="slurmctld"):
            engine.submit(order_of())
        assert time.monotonic() - started < 60
        slurm.start("slurmctld")
        wait_for(lambda: _submitted(engine, order) == handle, "slurmctld", within_s=90)
        engine.stop(handle)


def _submitted(engine: Engine, order: AllocationOrder) -> str:
    """Submit again until slurmctld answers. Returns "" while it does not."""
    try:
        return engine.submit(order)
    except EngineAway:
        return ""
