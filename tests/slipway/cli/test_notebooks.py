"""`slipway notebook verify` and `diff` on this machine, without any server."""

import json
import secrets
from pathlib import Path

import pytest

from slipway.cli.exits import ExitCode
from tests.portal.notebooks.notebooks import code, notebook
from tests.slipway.cli.conftest import Cli


@pytest.mark.thorough
def test_notebooks_are_verified_cell_by_cell_and_the_code_says_how_it_went(
    cli: Cli, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    (tmp_path / "helper.py").write_text("ANSWER = 42\n")
    good.write_bytes(
        notebook(
            code("from helper import ANSWER", count=1),
            code("print(ANSWER)", count=2, prints="42\n"),
        )
    )
    content = notebook(code("print(1)", count=2, prints="0\n"), code("x", count=1))
    bad.write_bytes(content)
    fine = cli("notebook", "verify", str(good))
    assert fine.code == 0, fine.err
    assert "reproducible; 2 of 2 code cells ran." in fine.out
    ran = cli("notebook", "verify", str(good), str(bad), "--json")
    assert ran.code == 11, ran.err
    one, other = ran.document["notebooks"]
    assert (one["passed"], other["passed"], ran.document["passed"]) == (True, False, False)
    assert [(finding["cell"], finding["kind"]) for finding in other["findings"]] == [
        (1, "differs"),
        (2, "hidden_state"),
        (2, "out_of_order"),
    ]
    assert bad.read_bytes() == content


@pytest.mark.thorough
def test_findings_and_lines_that_are_left_out_are_counted(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "many.ipynb"
    printing = code("print('1\\n' * 14)", count=1, prints="0\n" * 14)
    file.write_bytes(notebook(printing, *(code(str(number)) for number in range(502))))
    ran = cli("notebook", "verify", str(file))
    assert "… 4 more lines" in ran.out
    assert "3 more findings not shown." in ran.err
    report = cli("notebook", "verify", str(file), "--json").document["notebooks"][0]
    assert (len(report["findings"]), report["findings_left_out"]) == (500, 3)


def test_what_is_no_notebook_is_told_in_words(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "no.ipynb"
    file.write_text('{"cells": 3}')
    ran = cli("notebook", "verify", str(file))
    assert ran.code == 2
    assert "is not a notebook" in ran.err
    gone = cli("notebook", "verify", str(tmp_path / "gone.ipynb"))
    assert gone.code == 2
    assert "cannot be read" in gone.err


def test_two_notebooks_are_compared(cli: Cli, tmp_path: Path) -> None:
    one, other = tmp_path / "one.ipynb", tmp_path / "other.ipynb"
    one.write_bytes(notebook(code("a = 1\nb = 2")))
    other.write_bytes(notebook(code("a = 1\nb = 3")))
    ran = cli("notebook", "diff", str(one), str(other))
    assert ran.code == 0, ran.err
    assert "-b = 2" in ran.out.replace("-  ", "-")
    assert "b = 3" in ran.out
    same = cli("notebook", "diff", str(one), str(one), "--json")
    assert json.loads(same.out) == {"is_same": True, "diff": ""}


def test_a_notebook_is_deleted_by_its_path_and_brought_back(alice: Cli, tmp_path: Path) -> None:
    project = f"files-{secrets.token_hex(4)}"
    assert alice("project", "create", project, "--slug", project).code == 0
    here = ("--project", project)
    file = tmp_path / "report.ipynb"
    file.write_bytes(notebook(code("print(1)")))
    kept = alice("notebook", "save", str(file), "--path", "a/report.ipynb", *here)
    assert kept.code == 0, kept.err
    gone = alice("notebook", "delete", "a/report.ipynb", "--yes", *here)
    assert gone.code == 0, gone.err
    assert "slipway notebook undelete a/report.ipynb" in gone.err
    assert alice("notebook", "files", "--quiet", *here).out == ""
    assert "a/report.ipynb" in alice("notebook", "files", "--deleted", "--quiet", *here).out
    assert alice("notebook", "history", "a/report.ipynb", *here).code == ExitCode.NOT_FOUND
    back = alice("notebook", "undelete", "a/report.ipynb", *here)
    assert (back.code, back.out.strip()) == (0, "a/report.ipynb is restored.")
    assert "a/report.ipynb" in alice("notebook", "files", "--quiet", *here).out
    again = alice("notebook", "undelete", "a/report.ipynb", *here)
    assert again.code == ExitCode.NOT_FOUND
    assert "slipway notebook files --deleted" in again.err
