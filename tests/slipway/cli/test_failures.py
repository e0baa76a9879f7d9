"""Exit codes, and what a person or a script reads when something goes wrong."""

import io
import json
import re
import socket
from pathlib import Path

import pytest

from slipway import errors
from slipway.cli.exits import ExitCode, UsageMistake, exit_code_for
from slipway.cli.main import main
from slipway.schemas.problem import Problem
from tests.live import LivePortal
from tests.slipway.cli.conftest import Cli

DOCS = Path(__file__).resolve().parents[3] / "docs" / "cli.md"


def test_the_exit_codes_are_documented() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", DOCS.read_text(), flags=re.MULTILINE)
    assert {name: int(code) for code, name in rows} == {c.name.lower(): c.value for c in ExitCode}


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (UsageMistake, 2),
        (errors.NotLoggedIn, 3),
        (errors.Unauthenticated, 3),
        (errors.Forbidden, 4),
        (errors.NotFound, 5),
        (errors.InvalidInput, 6),
        (errors.Conflict, 6),
        (errors.TooLarge, 6),
        (errors.RateLimited, 7),
        (errors.Unavailable, 7),
        (errors.ConnectionFailed, 7),
        (errors.ServerError, 1),
        (errors.UnexpectedAnswer, 1),
    ],
)
def test_each_error_has_its_exit_code(kind: type[errors.SlipwayError], code: int) -> None:
    assert exit_code_for(kind("why")) == code


def test_a_person_reads_what_why_and_what_next(alice: Cli) -> None:
    ran = alice("project", "show", "no-such-project")
    assert ran.code == 5
    lines = ran.err.splitlines()
    assert lines[0] == "Error: Not found."
    assert lines[1].startswith("  There is no such object")
    assert lines[2].startswith("  Next step: ")
    assert re.fullmatch(r"  Request id: [\w.-]+", lines[3])
    assert ran.out == ""


def test_a_script_reads_one_problem_document(alice: Cli) -> None:
    ran = alice("project", "show", "no-such-project", "--json")
    assert (ran.code, ran.out) == (5, "")
    problem = Problem.model_validate(ran.problem)
    assert (problem.status, problem.code) == (404, "not_found")
    assert problem.request_id


def test_faults_of_fields_are_listed(alice: Cli) -> None:
    ran = alice("project", "create", "x" * 200, "--slug", "Not a slug")
    assert ran.code == 6
    assert "· name: has 200 characters" in ran.err
    assert "· slug: must be" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("projekt",),
        ("project", "lst"),
        ("project", "list", "--limit", "many"),
        ("project", "list", "--limit", "0"),
        ("project", "list", "--nonsense"),
        ("project", "create"),
        ("token", "create", "name"),
    ],
)
def test_a_mistyped_command_is_a_usage_error(cli: Cli, arguments: tuple[str, ...]) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "--help" in ran.err
    problem = cli(*arguments, "--json").problem
    assert (problem["code"], problem["status"]) == ("usage", 400)


def test_code_that_cannot_be_sent_is_invalid_input(
    alice: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "data").symlink_to("/usr")
    monkeypatch.chdir(tmp_path)
    problem = alice("train", "train.py", "--project", "vision", "--json").problem
    assert (problem["code"], problem["status"]) == ("link_leads_out", 422)


def test_not_being_signed_in_is_told_before_anything_is_sent(cli: Cli) -> None:
    ran = cli("project", "list", "--json")
    assert ran.code == 3
    assert (ran.problem["code"], ran.problem["status"]) == ("not_logged_in", 401)
    assert "slipway login" in ran.problem["next_step"]


def test_a_server_that_is_not_there_is_unavailable(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("SLIPWAY_TOKEN", "slp_x")
    ran = cli("whoami", "--url", f"http://127.0.0.1:{port}")
    assert ran.code == 7
    assert f"No answer from http://127.0.0.1:{port}" in ran.err
    problem = cli("whoami", "--url", f"http://127.0.0.1:{port}", "--json").problem
    assert (problem["code"], problem["status"]) == ("connection_failed", 503)


def test_a_token_without_the_scope_is_forbidden(
    alice: Cli, portal: LivePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = alice("token", "create", "narrow", "--scope", "projects:read", "-q")
    monkeypatch.setenv("SLIPWAY_TOKEN", made.out.strip())
    ran = alice("token", "list")
    assert ran.code == 4
    assert "Next step:" in ran.err


def test_a_fault_of_the_command_itself_says_so(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = io.StringIO()
    gone.close()
    monkeypatch.setattr("sys.stdout", gone)
    assert main(["audit", "list", "--help"]) == 1
    output = capsys.readouterr().err
    assert "Traceback" in output
    assert "bug in the slipway command" in output
    assert main(["logout", "http://localhost:1", "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["code"] == "unexpected"


def test_a_config_folder_of_nobody_is_explained(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CONFIG_DIR", "~no-such-person/config")
    ran = cli("whoami")
    assert ran.code == 6
    assert "SLIPWAY_CONFIG_DIR" in ran.err
