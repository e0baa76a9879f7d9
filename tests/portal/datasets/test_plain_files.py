"""Files that look like tables and are stored as they are, because the version declares them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

import slipway
from portal.datasets.version_checks import check_waiting
from slipway import errors
from slipway.datasets import dataset
from tests.live import LivePortal
from tests.personas import Api, Personas, json_of
from tests.portal.datasets.pushing import begin, fill, push

NOTES = b"Notes of the team; no table:\n\n1,2\n3,4,5\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table in two parts, beside two files that look like tables and are documentation."""
    folder = tmp_path / "data"
    (folder / "docs").mkdir(parents=True)
    for part in (1, 2):
        (folder / f"part-{part}.csv").write_bytes(b"a\n%d\n" % part)
    (folder / "part-0.csv").write_bytes(NOTES)
    (folder / "docs" / "README.xlsx").write_bytes(b"PK\x03\x04 no workbook")
    return folder


@pytest.mark.thorough
def test_declared_files_are_stored_as_they_are_and_are_in_no_table(
    alice: slipway.Client, project: str, folder: Path
) -> None:
    with pytest.raises(errors.InvalidInput) as refused:
        alice.datasets.push("people", folder, project=project)
    assert "plain_files" in str(refused.value)
    assert "--plain-file" in str(refused.value.next_step)
    patterns = ["*.xlsx", "part-0.csv"]
    version = alice.datasets.push("people", folder, project=project, plain_files=patterns)
    assert version.settings.plain_files == patterns
    (table,) = alice.datasets.tables("people", 1, project=project)
    assert (table.name, table.files, table.statistics.rows) == ("part-*.csv", 2, 2)
    read = dataset(version.reference, project=project, client=alice)
    assert read.arrow().to_pydict() == {"a": [1, 2]}
    assert (read.path / "part-0.csv").read_bytes() == NOTES
    assert (read.path / "docs" / "README.xlsx").read_bytes() == b"PK\x03\x04 no workbook"


@pytest.mark.thorough
def test_a_pattern_that_no_file_matches_is_refused(
    alice: slipway.Client, project: str, folder: Path
) -> None:
    patterns = ["*.xlsx", "part-0.csv", "docs/readme.*"]
    with pytest.raises(errors.InvalidInput) as refused:
        alice.datasets.push("people", folder, project=project, plain_files=patterns)
    assert "No file matches docs/readme.*" in refused.value.message


def test_a_version_of_plain_files_alone_has_no_tables(people: Personas) -> None:
    bob = Api.of(people.bob)
    draft = begin(bob)
    fill(bob, draft, {"a.csv": NOTES, "b.csv": NOTES, "deep/c.tsv.gz": b"no gzip"})
    settings = {"plain_files": ["*.csv", "deep/*"]}
    assert bob.post(f"{draft}/commit", {"settings": settings}).status_code == 200
    check_waiting()
    version = json_of(bob.get(draft))
    assert (version["state"], version["rows"], version["files"]) == ("ready", None, 3)
    assert json_of(bob.get(f"{draft}/tables")) == []


@pytest.mark.parametrize("patterns", [[""], ["a\nb"], ["x" * 1001], ["*"] * 21])
def test_patterns_are_short_lines(people: Personas, patterns: list[str]) -> None:
    bob = Api.of(people.bob)
    draft = begin(bob)
    fill(bob, draft, {"a.csv": b"a\n1\n"})
    answer = bob.post(f"{draft}/commit", {"settings": {"plain_files": patterns}})
    assert answer.status_code == 422
    assert "plain_files" in answer.content.decode()


@pytest.mark.thorough
def test_the_page_names_the_setting_takes_it_and_shows_it(people: Personas) -> None:
    bob = Api.of(people.bob)
    version = push(bob, {"t.csv": b"a\n1\n", "docs/README.xlsx": b"no workbook"})
    assert version["state"] == "refused"
    browser = Client()
    browser.force_login(people.bob)
    address = f"/p/vision/datasets/digits/v/{version['id']}"
    page: Any = browser.get(address)
    assert "Plain files" in page.content.decode()
    assert "plain_files" in version["reason"]
    form = {"types": "", "plain_files": "docs/*\r\n\r\n"}
    browser.post(f"{address}/commit", form)
    check_waiting()
    shown = browser.get("/p/vision/datasets/digits/v/1").content.decode()
    assert "Plain files, not in a table: <code>docs/*</code>" in shown


@pytest.mark.thorough
def test_the_command_line_declares_plain_files(
    portal: LivePortal, worker: None, alice: slipway.Client, project: str, folder: Path
) -> None:
    command = [sys.executable, "-m", "slipway", "dataset", "push", "people", str(folder)]
    command += [
        "--json",
        "--project",
        project,
        "--plain-file",
        "*.xlsx",
        "--plain-file",
        "part-0.csv",
    ]
    environment = portal.environment | {
        "SLIPWAY_URL": portal.url, "SLIPWAY_TOKEN": portal.tokens["alice"],
    }  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["settings"]["plain_files"] == ["*.xlsx", "part-0.csv"]
