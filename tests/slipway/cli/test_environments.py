"""Named environments from the command line, and through the SDK that it uses."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipway.cli.exits import ExitCode
from tests.slipway.cli.conftest import Cli
from tests.slipway.servers import Answer, answer_json, serve
from tests.workers.node_agent.packages import make_wheel

USER = {"id": "usr_1", "email": "a@example.org", "name": "Alice"}
VERSION = {
    "reference": "trees@1",
    "number": 1,
    "python": "3.11",
    "packages": 1,
    "digest": "d" * 64,
    "build": "ready",
    "created_by": USER,
    "created_at": "2026-01-01T00:00:00Z",
    "requirements": "jinja2",
    "locked": "jinja2==3.1.2",
}
FLAW = {
    "package": "jinja2",
    "version": "3.1.2",
    "id": "PYSEC-2024-1",
    "aliases": ["CVE-2024-1"],
    "summary": "Escapes \x1b[31m nothing",
    "fixed": ["3.1.3"],
    "link": "https://osv.dev/vulnerability/PYSEC-2024-1",
}


def answer_audit(audit: dict[str, Any]) -> Callable[[str, str], Answer]:
    """A portal with one version, of which this is known."""
    return lambda _method, _path: answer_json(VERSION | {"audit": audit})


@pytest.mark.parametrize(
    ("audit", "code", "text"),
    [
        ({"state": "checked", "packages": 1}, ExitCode.OK, "None known in 1 packages."),
        (
            {"state": "checked", "packages": 1, "vulnerabilities": [FLAW]},
            ExitCode.VULNERABLE,
            "jinja2 3.1.2: PYSEC-2024-1, CVE-2024-1; fixed in 3.1.3; Escapes \\x1b[31m nothing",
        ),
        (
            {"state": "failed", "reason": "It is away.", "vulnerabilities": [FLAW]},
            ExitCode.VULNERABLE,
            "It is away.",
        ),
        ({"state": "pending", "reason": "Not yet."}, ExitCode.UNAVAILABLE, "Not yet."),
    ],
)
def test_an_audit_ends_with_what_is_known(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, audit: dict[str, Any], code: ExitCode, text: str
) -> None:
    monkeypatch.setenv("SLIPWAY_TOKEN", "slt_x")
    with serve(answer_audit(audit)) as url:
        options = ("--url", url, "--project", "vision")
        ran = cli("env", "audit", "trees@1", *options)
        shown = cli("env", "show", "trees@1", *options)
        as_json = cli("env", "audit", "trees@1", "--json", *options)
    assert ran.code == as_json.code == code, ran.err
    assert text in ran.out
    assert text in " ".join(shown.out.split())
    assert as_json.document["state"] == audit["state"]


def test_environments_are_created_versioned_and_chosen(alice: Cli, tmp_path: Path) -> None:
    project = f"environments-{secrets.token_hex(4)}"
    assert alice("project", "create", project, "--slug", project).code == 0
    here = ("--project", project)
    assert "slipway env create" in alice("env", "list", *here).err
    file = tmp_path / "requirements.txt"
    file.write_text("Humanize\n../local.whl\n")
    refused = alice("env", "create", "trees", "-r", str(file), "--json", *here)
    assert (refused.code, refused.problem["field"]) == (ExitCode.INVALID, "requirements")
    assert "Line 2 of the requirements" in refused.problem["detail"]
    file.write_text("Humanize\n")
    created = alice("env", "create", "trees", "-r", str(file), "--quiet", *here)
    assert created.out.strip() == "trees@1"
    file.write_text("humanize\nsix\n")
    assert alice("env", "version", "trees", "-r", str(file), *here).code == 0
    assert alice("env", "versions", "trees", "--quiet", *here).out.split() == ["trees@2", "trees@1"]
    shown = alice("env", "show", "trees", "--json", *here).document
    assert (shown["reference"], shown["requirements"]) == ("trees@2", "humanize\nsix")
    assert alice("env", "show", "trees@1", "--json", *here).document["packages"] == 1
    frozen = alice("env", "freeze", "trees", "--json", *here)
    assert (frozen.code, frozen.problem["code"]) == (ExitCode.INVALID, "not_built")
    assert "slipway env build trees@2" in frozen.problem["next_step"]
    audited = alice("env", "audit", "trees", "--json", *here)
    assert (audited.code, audited.document["state"]) == (ExitCode.UNAVAILABLE, "not_checked")
    assert "switched these checks off" in alice("env", "audit", "trees@1", *here).out
    build = alice("env", "build", "trees", "--json", *here)
    assert (build.code, build.problem["code"]) == (ExitCode.INVALID, "no_node_builds_ahead")
    wrong = alice("env", "show", "trees@x", "--json", *here)
    assert (wrong.code, wrong.problem["field"]) == (ExitCode.USAGE, "environment")

    assert "environment of the installation" in alice("env", "default", *here).err
    assert alice("env", "default", "trees", *here).out.strip() == "trees"
    archived = alice("env", "archive", "trees", "--json", *here)
    assert archived.problem["code"] == "environment_is_default"
    assert alice("env", "default", "--none", "--json", *here).document == {"environment": None}
    assert alice("env", "archive", "trees", *here).code == 0
    assert alice("env", "list", "--archived", "--quiet", *here).out.split() == ["trees"]
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    train = ("train", "train.py", "--code", str(tmp_path), "--environment", "trees", "--json")
    job = alice(*train, *here)
    assert (job.code, job.problem["code"]) == (ExitCode.INVALID, "environment_archived")
    assert alice("env", "restore", "trees", *here).code == 0
    assert alice("env", "list", "--quiet", *here).out.split() == ["trees"]


def test_a_folder_with_a_wheel_becomes_an_environment(alice: Cli, tmp_path: Path) -> None:
    project = f"environments-{secrets.token_hex(4)}"
    assert alice("project", "create", project, "--slug", project).code == 0
    here = ("--project", project)
    (tmp_path / "code" / "wheels").mkdir(parents=True)
    made = make_wheel(tmp_path / "code" / "wheels", "acme_tools", "1.0").name
    requirements = tmp_path / "code" / "requirements.txt"
    requirements.write_text(f"./wheels/{made}\n")
    folder = ("--code", str(tmp_path / "code"))
    alone = alice("env", "create", "tools", "-r", str(requirements), "--json", *here)
    assert (alone.code, alone.problem["code"]) == (ExitCode.INVALID, "bad_requirement")
    assert "--code FOLDER" in alone.problem["next_step"]
    created = alice("env", "create", "tools", *folder, "--quiet", *here)
    assert created.out.strip() == "tools@1", created.err
    shown = alice("env", "show", "tools", "--json", *here).document
    assert shown["requirements"].startswith(f"acme-tools @ file:{made}#sha256=")
    # Git ignores a folder of builds, and --include sends it.
    (tmp_path / "code" / ".gitignore").write_text("dist/\n")
    (tmp_path / "code" / "dist").mkdir()
    second = make_wheel(tmp_path / "code" / "dist", "acme_more", "2.0").name
    more = tmp_path / "code" / "more.txt"
    more.write_text(f"-r requirements.txt\n./dist/{second}\n")
    ignored = alice("env", "version", "tools", *folder, "-r", str(more), "--json", *here)
    assert "--include" in ignored.problem["next_step"]
    sent = ("--include", f"dist/{second}")
    added = alice("env", "version", "tools", *folder, "-r", str(more), *sent, "--json", *here)
    assert (added.code, added.document["packages"]) == (0, 2), added.err
    astray = alice("env", "version", "tools", *sent, "--json", *here)
    assert (astray.code, astray.problem["field"]) == (ExitCode.USAGE, "include")
