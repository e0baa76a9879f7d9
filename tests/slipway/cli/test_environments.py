"""Named environments from the command line, and through the SDK that it uses."""

import secrets
from pathlib import Path

from slipway.cli.exits import ExitCode
from tests.slipway.cli.conftest import Cli


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
