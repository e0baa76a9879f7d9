"""Many processes at once on a real database: meters that are killed, starts that race."""

import json
from pathlib import Path

import pytest

from tests.processes import installation

pytestmark = pytest.mark.integration
# Runs inside `manage.py shell`: makes people, a machine and a tier, then forks.
_WORLD = """
import json, os, random, signal, sys, time
from datetime import timedelta
from django.db import OperationalError, connections, transaction
from portal.compute.models import Node
from portal.config.supervision.children import die_with_parent
from portal.core import clock
from portal.core.errors import Conflict
from portal.spend.meter import meter
from portal.spend.models import Line
from portal.spend.services.budgets import set_budget
from portal.workloads.models import Lease, Workload
from slipway.schemas.spend import BudgetIn
from tests.personas import make_personas
from tests.portal.spend.ledgers import (
    assert_sums_equal_lines, close, make_lease, make_workload, owed, written
)
from tests.portal.workloads.machines import make_machine, make_tier, register_kinds, submit
parent = os.getpid()
register_kinds()
people, node = make_personas(), make_machine("lab").node
tier = make_tier("small", nano_usd_per_hour=3_600_000_001)

def forked(work):
    for each in connections.all(initialized_only=True):
        each.close()
        if each.vendor == "postgresql":
            each.close_pool()  # its threads would not be in the child
    child = os.fork()
    if child:
        return child
    die_with_parent(parent, signal.SIGKILL)
    try:
        work()
    finally:
        os._exit(0)
"""
_KILL_METERS = """
chance = random.Random(7)
now = clock.now()

def measure():
    while True:
        try:
            meter()
        except OperationalError:
            pass  # another one writes; the next round does it

def grant():
    at = now - timedelta(seconds=chance.uniform(0, 90_000))
    lease = make_lease(make_workload(people.vision, people.bob, tier, at), node, at)
    if chance.random() < 0.6:
        close(lease, at + timedelta(seconds=chance.uniform(0, 100_000)))

meters = [forked(measure) for _ in range(3)]
killed = 0
while killed < 50:
    for _ in range(4):
        grant()
    time.sleep(chance.uniform(0, 0.06))
    victim = meters.pop(0)
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    killed += 1
    meters.append(forked(measure))
for victim in meters:
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
for lease in Lease.objects.open():
    close(lease, clock.now())
meter()
lines = written()
off = sum(abs(lines[lease.pk] - owed(lease, now)) for lease in Lease.objects.all())
assert_sums_equal_lines()
print("told " + json.dumps({
    "killed": killed,
    "off": off,
    "leases": Lease.objects.count(),
    "settled": Lease.objects.filter(is_settled=True).count(),
    "lines": Line.objects.count(),
}))
"""
_RACE = """
from portal.spend.admission import BudgetAdmission
from portal.workloads.ports import register_admission
register_admission(BudgetAdmission())
set_budget(by=people.alice, spec=BudgetIn(project="vision", limit_nano_usd=10_800_000_003))
go = time.monotonic() + 2.0

def start():
    time.sleep(max(0.0, go - time.monotonic()))
    while True:
        try:
            submit(people.vision, people.bob, tier, max_lifetime_s=3600)
            os._exit(7)
        except Conflict as error:
            os._exit(8 if error.code == "budget_exhausted" else 9)
        except OperationalError:
            pass  # SQLite lets one write at a time

ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for child in [forked(start) for _ in range(40)]]
print("told " + json.dumps({
    "admitted": ends.count(7), "refused": ends.count(8), "workloads": Workload.objects.count(),
}))
"""


def _told(folder: Path, script: str) -> dict[str, int]:
    """Run a script over a fresh database and return what it tells."""
    with installation(folder) as made:
        for arguments in (("prepare", "--no-input"), ("shell", "--no-imports", "-c", script)):
            done = made.manage(*arguments)
            assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("told "))
    counts: dict[str, int] = json.loads(line.removeprefix("told "))
    return counts


@pytest.mark.thorough
def test_meters_killed_fifty_times_under_load_are_not_a_nano_dollar_off(tmp_path: Path) -> None:
    counts = _told(tmp_path, _WORLD + _KILL_METERS)
    assert counts["killed"] == 50
    assert counts["off"] == 0
    assert counts["leases"] == counts["settled"] == 200
    assert counts["lines"] > 1000


def test_of_forty_processes_that_start_at_once_exactly_three_are_admitted(tmp_path: Path) -> None:
    counts = _told(tmp_path, _WORLD + _RACE)
    assert counts == {"admitted": 3, "refused": 37, "workloads": 3}
