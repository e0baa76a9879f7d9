"""The SDK and the command line register and promote through a real portal."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import slipway
from slipway import errors
from slipway.schemas.registry import RulesIn, TargetGates, TargetKind
from tests.live import ROOT, LivePortal
from tests.model_files import SOURCE, write_model


@pytest.fixture
def alice(portal: LivePortal) -> Iterator[slipway.Client]:
    with slipway.Client(portal.url, portal.tokens["alice"]) as client:
        yield client


@pytest.fixture
def project(alice: slipway.Client, portal: LivePortal) -> str:
    """A project with the files of a model."""
    project = alice.projects.create(f"Project {secrets.token_hex(4)}")
    write_model(portal.data_dir / "artifacts", project.id)
    return project.slug


def test_a_model_is_registered_with_golden_predictions_and_promoted(
    alice: slipway.Client, project: str
) -> None:
    where: dict[str, Any] = {"project": project, "client": alice}
    made = slipway.register(SOURCE, "digits", golden=([[0.5]], [7]), **where)
    assert (made.version, made.golden and made.golden.rows) == (1, 1)
    model = slipway.Model("digits", **where)
    assert [version.version for version in model.versions()] == [1]
    gates = [{"kind": "golden"}, {"kind": "approval"}]
    target = {"kind": TargetKind.STAGE, "name": "Production"}
    alice.models.put_rules(
        RulesIn(
            gates=[TargetGates.model_validate(target | {"gates": gates})],
            revision=0,
        ),
        project=project,
    )
    plan = model.version(1).plan("production")
    assert [gate.passed for gate in plan.gates] == [True, False]
    with pytest.raises(errors.Conflict, match="Nobody has requested") as refused:
        model.promote("production")
    assert "maintainer" in (refused.value.next_step or "")
    request = model.version(1).request_approval("production", note="please")
    with pytest.raises(errors.Forbidden, match="registered this version"):
        alice.models.decide("digits", request.id, project=project, verdict="approve")
    move = model.promote("production", override_reason="alone in this project")
    assert (move.target, move.sequence) == ("Production", 1)
    assert model.promote("champion").kind is TargetKind.ALIAS
    assert [entry.sequence for entry in alice.models.history("digits", project=project)] == [2, 1]
    figures = model.latest().evaluate({"accuracy": 0.9, "loss": float("nan")}, dataset="digits:3")
    assert [(figure.value, figure.is_verified) for figure in figures] == [
        (0.9, False),
        (None, False),
    ]


@pytest.mark.thorough
def test_the_command_line_says_the_same(
    alice: slipway.Client, project: str, portal: LivePortal
) -> None:
    environment = os.environ | {
        "SLIPWAY_URL": portal.url,
        "SLIPWAY_TOKEN": portal.tokens["alice"],
        "SLIPWAY_PROJECT": project,
        "PYTHONPATH": str(ROOT / "platform"),
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "slipway", "model", *words]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    assert run("register", SOURCE, "digits", "--quiet").stdout.strip() == "1"
    assert "digits" in run("list").stdout
    plan = json.loads(run("plan", "digits", "1", "staging", "--json").stdout)
    assert (plan["target"], plan["may_promote"]) == ("Staging", True)
    assert "stage Staging" in run("promote", "digits", "1", "staging").stdout
    again = run("promote", "digits", "1", "staging")
    assert again.returncode != 0
    assert "already" in again.stderr
    assert "Staging" in run("show", "digits", "1").stdout
    assert "Staging" in run("versions", "digits").stdout
    assert "stage Staging" in run("history", "digits").stdout
    request = json.loads(run("request", "digits", "1", "production", "--json").stdout)
    assert "withdrawn" in run("decide", "digits", request["id"], "withdraw").stdout
    assert run("decide", "digits", request["id"], "shrug").returncode == 2
    assert run("register", SOURCE, "digits", "--batching", "rows", "--quiet").returncode == 0
    assert "rows: Its author declared rows." in run("show", "digits", "2").stdout
    stated = json.loads(run("batching", "digits", "2", "off", "--json").stdout)
    assert stated["batching"]["mode"] == "off"
    left = json.loads(run("batching", "digits", "2", "auto", "--json").stdout)
    assert left["batching"]["stated"] is None
    assert run("batching", "digits", "2", "columns").returncode == 2


def test_an_author_states_whether_requests_may_be_merged(
    alice: slipway.Client, project: str
) -> None:
    where: dict[str, Any] = {"project": project, "client": alice}
    made = slipway.register(SOURCE, "digits", batching="rows", **where)
    assert (made.batching.mode, made.batching.stated_in) == ("rows", "registration")
    assert made.batching.reason == "Its author declared rows."
    version = slipway.Model("digits", **where).version(1)
    left = version.set_batching(None)
    assert (left.batching.mode, left.batching.stated) == ("requests", None)
    assert "No golden rows are recorded" in left.batching.reason
    assert version.set_batching("off").batching.mode == "off"
    with pytest.raises(errors.InvalidInput):
        slipway.register(SOURCE, "digits", batching="columns", **where)
