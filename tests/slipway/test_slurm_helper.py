"""The helper on a login node refuses whatever a hostile server asks of it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.schemas.pool_helpers import HelperRequestOut, HelperStatus
from slipway.slurm_helper import SlurmHelper

_OPTIONS = {"job-name": "sw-01abc", "partition": "main", "time": "5", "mem": "512M"}
_SCRIPT = "#!/bin/sh\ntrue\n"


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which commands of Slurm note that they ran, instead of doing anything."""
    notes = tmp_path / "ran"
    for name in ("sbatch", "squeue", "sacct", "scancel"):
        program = tmp_path / name
        program.write_text(
            f"#!/bin/sh\n[ {name} != sbatch ] || echo 4711\n"
            # The queue has a job of Slipway and one of the person's own.
            f'case "{name} $*" in *%j) echo "5|sw-1"; esac\n'
            f'case "{name} $*" in *=5,6*%j) echo "6|other"; esac\n'
            f'echo "{name} $*" >>{notes}\n'
            f"env >>{notes}.env\n",
            "utf-8",
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SBATCH_PARTITION", "other")
    monkeypatch.setenv("SLIPWAY_TOKEN", "slp_secret")
    return notes


def execute(**fields: Any) -> tuple[HelperStatus, str, str | None]:
    """Execute a request; returns status, text and handle of the answer."""
    request = HelperRequestOut(id="hreq_1", **fields)
    answer = SlurmHelper(lambda _line: None).execute(request, 1e12)
    return answer.status, answer.text, answer.handle


def submission(options: Mapping[str, str] = _OPTIONS, script: str = _SCRIPT) -> dict[str, Any]:
    """Return the fields of a request to submit."""
    return {"operation": "submit", "options": dict(options), "script": script}


def test_a_job_is_submitted_with_the_given_options_and_a_clean_environment(ran: Path) -> None:
    assert execute(**submission()) == (HelperStatus.DONE, "", "4711")
    assert (
        "sbatch --parsable --no-requeue --export=NIL --output=/dev/null --job-name=sw-01abc "
        "--partition=main --time=5 --mem=512M\n"
    ) in ran.read_text("utf-8")
    variables = ran.with_name("ran.env").read_text("utf-8")
    assert "SBATCH_PARTITION" not in variables
    assert "slp_secret" not in variables


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "run", "handles": ["1"]},
        {"operation": "", "script": _SCRIPT},
        {"operation": "cancel", "handles": []},
        {"operation": "cancel", "handles": ["--user=alice"]},
        {"operation": "cancel", "handles": ["1 2"]},
        {"operation": "cancel", "handles": ["1\n"]},
        {"operation": "look", "handles": ["$(reboot)"]},
        {"operation": "usage", "handles": ["1,2"]},
        {"operation": "look", "handles": ["1"] * 1001},
        submission(_OPTIONS | {"wrap": "reboot"}),
        submission(_OPTIONS | {"uid": "0"}),
        submission(_OPTIONS | {"output": "~/.ssh/authorized_keys"}),
        submission(_OPTIONS | {"export": "ALL"}),
        submission(_OPTIONS | {"job-name": "sw-1 --uid=0"}),
        submission(_OPTIONS | {"partition": "--reservation=x"}),
        submission(_OPTIONS | {"time": "5\n"}),
        submission({"partition": "main"}),
        submission(script="#!/bin/sh\n#SBATCH --output=/tmp/x\ntrue\n"),
        submission(script="#!/bin/sh\n# sbatch --output=/tmp/x\ntrue\n"),
        submission(script="#!/usr/bin/python3\n"),
        submission(script=""),
        submission(script=_SCRIPT + "x" * 300_000),
    ],
)
def test_a_request_of_another_kind_runs_nothing(ran: Path, fields: dict[str, Any]) -> None:
    status, text, handle = execute(**fields)
    assert (status, handle) == (HelperStatus.REFUSED, None)
    assert text
    assert not ran.exists()


def test_a_request_that_took_too_long_is_not_submitted(ran: Path) -> None:
    request = HelperRequestOut(id="hreq_1", **submission())
    answer = SlurmHelper(lambda _line: None).execute(request, -1e6)
    assert (answer.status, answer.handle) == (HelperStatus.AWAY, None)
    assert "sbatch" not in ran.read_text("utf-8")


def test_a_job_of_the_person_that_is_not_of_slipway_is_not_cancelled(ran: Path) -> None:
    status, text, _ = execute(operation="cancel", handles=["5", "6"])
    assert (status, text) == (HelperStatus.REFUSED, "Job 6 is not one of Slipway.")
    assert "scancel" not in ran.read_text("utf-8")
    assert execute(operation="cancel", handles=["5"])[0] is HelperStatus.DONE
    assert "scancel 5\n" in ran.read_text("utf-8")
