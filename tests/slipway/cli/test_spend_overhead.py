"""`slipway spend --overhead`: machines of node groups and what they cost without work."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.slipway.cli.conftest import Cli
from tests.slipway.jobserver import PROJECT, TrainingServer, training_server

AT = "2026-11-20T12:00:00Z"
COST: dict[str, Any] = {
    "nano_usd": 12 * 10**9,
    "work_nano_usd": 9 * 10**9,
    "overhead_nano_usd": 3 * 10**9,
    "starting_nano_usd": 10**9,
    "idle_nano_usd": 5 * 10**8,
    "grace_nano_usd": 10**9,
    "ending_nano_usd": 5 * 10**8,
    "work_s": 3600,
    "overhead_s": 1200,
}
OVERHEAD: dict[str, Any] = {
    "window": "7d",
    "begin": AT,
    "end": AT,
    "as_of": AT,
    "nano_usd": 12 * 10**9,
    "work_nano_usd": 9 * 10**9,
    "overhead_nano_usd": 3 * 10**9,
    "groups": [
        {"group": "gpu", "is_removed": False, "by_day": [{"day": "2026-11-20"} | COST]} | COST
    ],
}


@pytest.fixture
def server() -> Iterator[TrainingServer]:
    with training_server() as job_server:
        yield job_server


@pytest.fixture
def here(cli: Cli, server: TrainingServer, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("SLIPWAY_URL", server.url)
    monkeypatch.setenv("SLIPWAY_TOKEN", "slp_x")
    monkeypatch.setenv("SLIPWAY_PROJECT", PROJECT)
    return cli


def test_overhead_is_printed_by_group_and_by_day(here: Cli, server: TrainingServer) -> None:
    server.answers["spend/overhead"] = OVERHEAD
    text = here("spend", "--overhead", "--window", "7d").out
    assert "$3.00, paid by no project" in text
    assert "$9.00" in text
    assert "gpu" in text
    assert "2026-11-20" not in text
    assert "2026-11-20" in here("spend", "--overhead", "--by", "day").out
    assert here("spend", "--overhead", "--quiet").out.strip() == str(3 * 10**9)
    assert json.loads(here("spend", "--overhead", "--json").out)["groups"][0]["group"] == "gpu"


def test_overhead_of_one_project_is_refused(here: Cli) -> None:
    refused = here("spend", "--overhead", "--installation")
    assert refused.code == 2
    assert "--overhead is of the installation" in refused.err


def test_a_window_without_machines_says_so(here: Cli, server: TrainingServer) -> None:
    server.answers["spend/overhead"] = OVERHEAD | {"groups": [], "nano_usd": 0}
    assert "No node group had a machine" in here("spend", "--overhead").err
