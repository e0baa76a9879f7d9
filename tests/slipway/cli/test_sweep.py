"""Sweeps from the command line, before they start."""

import secrets
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
