"""READMEs and reports from the command line, and through the SDK that it uses."""

import json
import secrets
from pathlib import Path

from slipway.cli.exits import ExitCode
from tests.slipway.cli.conftest import Cli


def test_a_readme_and_a_report_are_written_versioned_and_exported(
    alice: Cli, tmp_path: Path
) -> None:
    project = f"reports-{secrets.token_hex(4)}"
    assert alice("project", "create", project, "--slug", project).code == 0
    assert "has no README yet" in alice("project", "readme", project).err
    readme = tmp_path / "README.md"
    readme.write_text("# Eyes\n\nSee red\n")
    written = alice("project", "readme", project, "--write", str(readme))
    assert "Saved version 1" in written.err
    assert alice("project", "readme", project).out == "# Eyes\n\nSee red\n"
    stale = alice("project", "readme", project, "--write", str(readme), "--version", "0", "--json")
    assert (stale.code, stale.problem["code"]) == (ExitCode.INVALID, "readme_changed")
    missing = alice("project", "readme", project, "--write", str(tmp_path / "none"), "--json")
    assert missing.problem["field"] == "write"

    here = ("--project", project)
    file = tmp_path / "report.json"
    blocks = [{"kind": "text", "text": "It **works**."}, {"kind": "run", "run": "0" * 32}]
    file.write_text(json.dumps({"title": "Findings", "blocks": blocks}))
    report = alice("report", "create", "--file", str(file), "--quiet", *here).out.strip()
    assert alice("report", "list", "--quiet", *here).out.split() == [report]
    file.write_text(json.dumps({"title": "More findings", "blocks": blocks[:1]}))
    assert alice("report", "edit", report, "--file", str(file), *here).code == 0
    stale = alice("report", "edit", report, "--file", str(file), "--version", "1", "--json", *here)
    assert (stale.code, stale.problem["code"]) == (ExitCode.INVALID, "report_changed")
    shown = alice("report", "show", report, "--json", *here).document
    assert (shown["version"], shown["title"], len(shown["blocks"])) == (2, "More findings", 1)
    assert alice("report", "versions", report, "--quiet", *here).out.split() == ["2", "1"]
    restored = alice("report", "restore", report, "1", "--json", *here).document
    assert (restored["version"], restored["title"]) == (3, "Findings")
    target = tmp_path / "findings.html"
    exported = alice("report", "export", report, "--output", str(target), *here)
    assert exported.code == 0, exported.err
    page = target.read_text()
    assert "<strong>works</strong>" in page
    assert "This run no longer exists." in page
    link = alice("report", "share", report, *here).out.strip()
    assert "/shared/reports/" in link
    assert alice("report", "unshare", report, *here).code == 0
    bad = tmp_path / "bad.json"
    bad.write_text("[]")
    refused = alice("report", "create", "--file", str(bad), "--json", *here)
    assert refused.problem["field"] == "file"
    assert alice("report", "delete", report, "--yes", *here).code == 0
    assert "No report was found" in alice("report", "list", *here).err
