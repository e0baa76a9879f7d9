"""Commands say how many items of an answer are not in it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.slipway.cli.conftest import Cli
from tests.slipway.jobserver import PROJECT, TrainingServer, training_server

AT = "2026-11-20T12:00:00Z"
SPEND: dict[str, Any] = {
    "window": "month",
    "begin": AT,
    "end": AT,
    "as_of": AT,
    "nano_usd": 10**9,
    "nano_usd_per_hour": 0,
    **{f"by_{split}": [] for split in ("project", "person", "tier", "kind", "day")},
    "runs": [],
}
ENDPOINT: dict[str, Any] = {
    "id": "ep_1",
    "name": "digits",
    "project": PROJECT,
    "state": "serving",
    "tier": "small",
    "url": "https://endpoints.example.org/digits",
    "min_replicas": 1,
    "max_replicas": 1,
    "desired_replicas": 1,
    "replicas_ready": 1,
    "target_concurrency": 1,
    "warm_minutes": 1,
    "target_queue_ms": 1.0,
    "fallback": "off",
    "nano_usd_per_hour": 0,
    "capture": "all",
    "limits": {},
    "rules": {},
    "made_by": "bob@example.org",
    "created_at": AT,
}
VERSION: dict[str, Any] = {
    "model": "digits",
    "version": 1,
    "stage": "None",
    "aliases": [],
    "description": "",
    "tags": {},
    "source": "runs:/1/model",
    "created_at": AT,
    "flavors": [],
    "files": [],
    "are_files_known": False,
    "size_bytes": 0,
    "evaluations": [],
    "batching": {"mode": "off", "verdict": "proved", "reason": "Declared."},
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


@pytest.mark.parametrize(
    ("by", "answer", "sentence"),
    [
        ("run", {"runs_left_out_nano_usd": 2 * 10**9}, "Other runs, not shown, cost $2.00"),
        ("tag", {"are_tags_left_out": True}, "More tags, which cost less, are not shown"),
        ("stored", {"stored_left_out": 3}, "3 more stores not shown."),
        (
            "endpoint",
            {
                "groups_left_out": ["served"],
                "groups": [
                    {"kind": "served", "noun": "endpoint", "project": "p", "name": "e"}
                    | {"nano_usd": 1}
                ],
            },
            "More endpoints, which cost less, are not shown",
        ),
    ],
)
def test_spend_says_what_is_not_listed(
    here: Cli, server: TrainingServer, by: str, answer: dict[str, Any], sentence: str
) -> None:
    server.answers["spend"] = SPEND | answer
    assert sentence in here("spend", "--by", by).err
    server.answers["spend"] = SPEND
    assert "not shown" not in here("spend", "--by", by).err


def test_earlier_revisions_are_counted(here: Cli, server: TrainingServer) -> None:
    server.answers[f"projects/{PROJECT}/endpoints/digits"] = ENDPOINT | {"revisions_left_out": 5}
    ran = here("endpoint", "show", "digits")
    assert ran.code == 0, ran.err
    assert "5 more earlier revisions not shown." in ran.err


def test_figures_of_a_version_are_counted(here: Cli, server: TrainingServer) -> None:
    at = f"projects/{PROJECT}/models/digits/versions/1"
    server.answers[at] = VERSION | {"evaluations_left_out": 1}
    ran = here("model", "show", "digits", "1")
    assert ran.code == 0, ran.err
    assert "1 more figure not shown." in ran.err


def test_a_revision_names_its_environment(here: Cli, server: TrainingServer) -> None:
    revision = {"number": 2, "model": "digits", "version": "7", "state": "live", "weight": 100}
    counts = {"replicas_ready": 1, "desired_replicas": 1, "answered": 0, "failed": 0}
    made = {"made_by": "bob@example.org", "created_at": AT, "environment_version": "trees@3"}
    revisions = [revision | counts | made]
    server.answers[f"projects/{PROJECT}/endpoints/digits"] = ENDPOINT | {"revisions": revisions}
    ran = here("endpoint", "show", "digits")
    assert ran.code == 0, ran.err
    assert "2: digits 7, live, 100 %, environment trees@3" in ran.out
