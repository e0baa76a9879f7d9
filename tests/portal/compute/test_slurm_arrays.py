"""Lists of elements, as Slurm writes them."""

from dataclasses import replace
from datetime import timedelta

import pytest

from portal.compute.adapters.engines.slurm import arrays
from portal.compute.adapters.engines.slurm.reports import JobLine, full_reason
from portal.compute.adapters.engines.slurm.script import batch_script
from portal.compute.adapters.engines.slurm.settings import SlurmSettings
from portal.compute.engines import AllocationOrder
from portal.compute.resources import Amount

_ORDER = AllocationOrder(
    name="sw-a",
    label="slipway vision train",
    tasks=1,
    amount=Amount(1000, 2**30),
    gpu_model="",
    time_limit=None,
    grace=timedelta(seconds=30),
    join_tokens=("slj_a",),
)


@pytest.mark.parametrize(
    ("column", "handles"),
    [
        ("7", ["7"]),
        ("7_3", ["7_3"]),
        ("7_[1,4-6%2]", ["7_1", "7_4", "7_5", "7_6"]),
        ("7_[1,4,...]", ["7_1", "7_4"]),
        ("7_[0-999999999]", []),
        ("7_[x-y]", []),
    ],
)
def test_a_column_names_the_handles_that_it_stands_for(column: str, handles: list[str]) -> None:
    assert arrays.expanded(column) == handles


def test_a_list_that_goes_on_is_seen() -> None:
    assert arrays.is_shortened("1,4,...")
    assert not arrays.is_shortened("1-4")


def test_orders_are_found_by_their_names_or_in_the_array_of_their_batch() -> None:
    orders = [replace(_ORDER, name=f"sw-{place}", place=place) for place in (0, 2, 3)]
    assert arrays.spec_of(orders) == "0,2,3"
    assert arrays.spec_of(orders[1:]) == "2-3"
    lines = [
        JobLine("9_3", "RUNNING", "", name="sw-many"),
        JobLine("4", "RUNNING", "", name="sw-0"),
    ]
    handles = arrays.handles_of("sw-many", orders, lines)
    assert handles == {"sw-0": "4", "sw-2": "9_2", "sw-3": "9_3"}
    assert arrays.handles_of("sw-many", orders, []) == {}


def test_an_element_that_only_the_accounting_lets_wait_is_out_of_date() -> None:
    assert arrays.is_stale(JobLine("9_3", "PENDING", "PartitionDown"))
    assert not arrays.is_stale(JobLine("9_3", "RUNNING", ""))
    assert not arrays.is_stale(JobLine("9", "PENDING", ""))


def test_a_limit_on_submitted_jobs_is_told_from_other_limits() -> None:
    policy = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    assert full_reason(f"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: {policy}")
    assert full_reason(f"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: {policy}")
    assert not full_reason(f"sbatch: error: QOSMaxCpuPerUserLimit\nsbatch: error: {policy}")


def test_the_script_of_an_array_chooses_one_token_and_removes_itself() -> None:
    orders = [
        replace(_ORDER, name=f"sw-{place}", join_tokens=(f"slj_{place}",), place=place)
        for place in range(2)
    ]
    settings = SlurmSettings(python="/usr/bin/python3")
    choice = {"url": "http://127.0.0.1:1", "python": "/usr/bin/python3", "task_python": ""}
    script = batch_script(orders, settings, **choice)
    assert "1) name=sw-1 SLIPWAY_JOIN_TOKENS=slj_1 ;;" in script
    assert script.index('rm -f "$0"') < script.index("srun")
    single = batch_script(orders[:1], settings, **choice)
    assert 'rm -f "$0"' not in single
    assert "slj_1" not in single
