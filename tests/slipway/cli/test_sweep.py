"""Sweeps from the command line, before they start."""

import secrets
from collections.abc import Callable
from pathlib import Path

from slipway.cli.exits import ExitCode
from tests.slipway.cli.conftest import Cli


def test_a_quote_reads_the_packages_that_the_code_names(alice: Cli, tmp_path: Path) -> None:
    project = f"sweeps-{secrets.token_hex(4)}"
    assert alice("project", "create", project, "--slug", project).code == 0
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "requirements.txt").write_text("six\n./local.whl\n")
    start = (
        *("sweep", "train.py", "--code", str(tmp_path), "--project", project, "--quote", "--json"),
        *("--metric", "accuracy:max"),
    )
    refused = alice(*start, "--param", "lr=uniform(0,1)")
    assert (refused.code, refused.problem["code"]) == (ExitCode.INVALID, "bad_requirement")
    assert "Line 2 of requirements.txt" in refused.problem["detail"]
    without_range = alice(*start, "--param", "lr=0.1")
    assert (without_range.code, without_range.problem["field"]) == (ExitCode.USAGE, "param")
    one_metric = ("--metric", "latency_ms:min", "--constraint", "size_mb<20")
    refused = alice(*start, "--param", "lr=uniform(0,1)", *one_metric)
    assert (refused.code, refused.problem["field"]) == (ExitCode.INVALID, "constraints")
    for verb in ("front", "repeat", "repeats"):
        missing = alice("sweep", verb, "swp_01ARZ3NDEKTSV4RRFFQ69G5FAV", "--project", project)
        assert missing.code == ExitCode.NOT_FOUND
    listed = alice("sweep", "list", "--project", project, "--json")
    assert (listed.code, listed.document["items"]) == (0, [])


def test_a_quote_names_the_budgets_that_have_to_admit_the_trials(
    signed_in: Callable[[str], Cli], tmp_path: Path
) -> None:
    alice, root = signed_in("alice"), signed_in("root")
    project = f"sweeps-{secrets.token_hex(4)}"
    tier = ("tier", "create", project, "--cpus", "1", "--memory", "1GiB", "--price", "0.1")
    assert root(*tier).code == 0
    assert alice("project", "create", project, "--slug", project).code == 0
    assert alice("budget", "set", "5", "--project", project).code == 0
    (tmp_path / "train.py").write_text("print(1)\n")
    quoted = alice(
        *("sweep", "train.py", "--code", str(tmp_path), "--project", project, "--quote"),
        *("--metric", "accuracy:max", "--param", "lr=uniform(0,1)", "--tier", project),
    )
    assert quoted.code == 0, quoted.err
    assert f"{project}: $5.00 of $5.00 left" in " ".join(quoted.out.split())
