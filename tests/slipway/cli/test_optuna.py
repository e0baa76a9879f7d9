"""Studies of Optuna and their storages from the command line."""

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

import slipway
from slipway.cli.exits import ExitCode
from tests.live import LivePortal
from tests.slipway.cli.conftest import Cli

ROOT = Path(__file__).resolve().parents[3]
_TIME = "2026-11-30T10:00:00.000000+00:00"


def _entry(op_code: int, **fields: object) -> str:
    return json.dumps({"op_code": op_code, "worker_id": "w", **fields})


@pytest.fixture
def project(alice: Cli, portal: LivePortal) -> str:
    """A project with a study of one trial."""
    slug = f"optuna-{secrets.token_hex(4)}"
    assert alice("project", "create", slug, "--slug", slug).code == 0
    with slipway.Client(portal.url, portal.tokens["alice"]) as client:
        entries = [
            _entry(0, study_name="digits", directions=[2]),
            _entry(4, study_id=0, datetime_start=_TIME),
            _entry(6, trial_id=0, state=1, values=[0.75], datetime_complete=_TIME),
        ]
        client.optuna.append("default", entries, project=slug)
    return slug


def test_storages_are_listed_and_deleted(alice: Cli, project: str) -> None:
    here = ("--project", project)
    assert alice("optuna", "storages", "--quiet", *here).out == "default\n"
    heading, row = alice("optuna", "storages", *here).rows
    assert heading[:5] == ["STORAGE", "STUDIES", "ENTRIES", "MIB", "PROBLEM"]
    assert (row[0], row[2:5]) == ("default", ["3", "0.0", "-"])
    (shown,) = alice("optuna", "storages", "--json", *here).document["items"]
    assert (shown["name"], shown["entries"], shown["is_full"]) == ("default", 3, False)

    refused = alice("optuna", "delete", "default", *here)
    assert refused.code == ExitCode.USAGE
    assert "--yes" in refused.err
    missing = alice("optuna", "delete", "../default", "--yes", "--json", *here)
    assert missing.problem["field"] == "storage"
    assert "slipway optuna storages" in missing.problem["next_step"]
    deleted = alice("optuna", "delete", "default", "--yes", "--json", *here)
    assert deleted.document == {"deleted": "default", "project": project}
    assert "No storage was found" in alice("optuna", "storages", *here).err
    assert "No study was found" in alice("optuna", "list", *here).err
    for command in ("show", "trials"):
        gone = alice("optuna", command, "ost_none", "--json", *here)
        assert gone.problem["status"] == 404


@pytest.mark.thorough
def test_studies_and_trials_are_shown(alice: Cli, portal: LivePortal, project: str) -> None:
    """The control worker is not running here, so its task is a process of its own."""
    script = (
        "import django; django.setup()\n"
        "from portal.sweeps.services.replays import replay_all; replay_all()"
    )
    subprocess.run([sys.executable, "-c", script], env=portal.environment, cwd=ROOT, check=True)
    here = ("--project", project)
    study = alice("optuna", "list", "--quiet", *here).out.strip()
    (row,) = alice("optuna", "list", *here).rows[1:]
    assert row[:5] == [study, "digits", "1", "0.75", "default"]
    assert alice("optuna", "list", "--search", "nothing", "--quiet", *here).out == ""
    shown = dict(alice("optuna", "show", study, *here).rows)
    assert (shown["Best"], shown["Goals"], shown["Trials"]) == ("0.75 (trial 0)", "max", "1")
    assert alice("optuna", "show", study, "--json", *here).document["best"]["value"] == 0.75
    (trial,) = alice("optuna", "trials", study, *here).rows[1:]
    assert trial[:3] == ["0", "complete", "0.75"]
    assert alice("optuna", "trials", study, "--quiet", *here).out == "0\n"
