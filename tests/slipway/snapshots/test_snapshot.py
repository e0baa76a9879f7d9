"""A whole snapshot: its script, its notebook, its temporary file."""

import json
import tracemalloc
from pathlib import Path

import pytest

from slipway import errors
from slipway.snapshots import take_snapshot
from tests.slipway.snapshots.folders import make_repository, unpacked, write_tree


def notebook(*cells: str, language: str = "python") -> str:
    """Return a notebook of code cells, with a page of text in front."""
    return json.dumps(
        {
            "metadata": {"kernelspec": {"language": language}},
            "cells": [
                {"cell_type": "markdown", "source": ["# Title"]},
                *(
                    {"cell_type": "code", "source": cell.splitlines(keepends=True)}
                    for cell in cells
                ),
            ],
        }
    )


def test_the_same_code_has_the_same_digest_wherever_it_lies(tmp_path: Path) -> None:
    files = {"train.py": "x = 1\n", "pkg/__init__.py": "", "pkg/ü.py": "y"}
    one = make_repository(tmp_path / "one", files)
    two = write_tree(tmp_path / "two", files)
    with take_snapshot(one) as first, take_snapshot(two) as second:
        assert first.digest == second.digest
        assert first.files == 3
    (two / "train.py").chmod(0o755)
    with take_snapshot(two) as third:
        assert third.digest != first.digest


def test_what_is_sent_is_what_was_counted_whatever_changes(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "before"})
    with take_snapshot(tmp_path) as snapshot:
        (tmp_path / "a.py").write_text("after")
        assert unpacked(snapshot) == unpacked(snapshot) == {"a.py": b"before"}


def test_a_large_file_does_not_go_through_memory(tmp_path: Path) -> None:
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(150_000_000)
    tracemalloc.start()
    try:
        with take_snapshot(tmp_path) as snapshot:
            assert sum(map(len, snapshot.pieces())) == snapshot.size_bytes > 150_000_000
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_script_is_named_by_its_path_from_the_folder(tmp_path: Path) -> None:
    write_tree(tmp_path / "code", {"pkg/train.py": "", "ignored.py": "", ".env": ""})
    (tmp_path / "code" / ".gitignore").write_text("ignored.py\n")
    code = tmp_path / "code"
    with take_snapshot(code) as snapshot:
        assert snapshot.script("pkg/train.py") == "pkg/train.py"
        assert snapshot.script("./pkg/../pkg/train.py") == "pkg/train.py"
        assert snapshot.script(code / "pkg" / "train.py") == "pkg/train.py"
        for name, reason in {
            "none.py": "There is no script none.py in ",
            "../train.py": "which is what travels",
            "ignored.py": "it is ignored",
            ".env": "looks like a secret",
            "pkg": "There is no script pkg",
            "": "There is no script",
        }.items():
            with pytest.raises(errors.InvalidInput) as caught:
                snapshot.script(name)
            assert reason in caught.value.message
    with pytest.raises(errors.InvalidInput, match="There is no script none"):
        take_snapshot(code, script="none.py")
    with pytest.raises(errors.InvalidInput, match="There is no folder"):
        take_snapshot(tmp_path / "nowhere")


def test_a_notebook_travels_with_the_script_it_is(tmp_path: Path) -> None:
    cells = (
        "%matplotlib inline\nimport sys",
        "%%time\nx = '''\n!not a command\n'''\nprint(x)",
        "y = 1",
    )
    write_tree(tmp_path, {"nb/explore.ipynb": notebook(*cells)})
    with take_snapshot(tmp_path, script="nb/explore.ipynb") as snapshot:
        assert snapshot.script("nb/explore.ipynb") == "nb/explore.ipynb.py"
        script = unpacked(snapshot)["nb/explore.ipynb.py"].decode()
    compile(script, "script", "exec")
    assert "pass  # %matplotlib inline" in script
    assert "!not a command" in script
    assert script.index("cell 1") < script.index("cell 3")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (notebook("x = 1", "  !pip install torch"), "'!pip install torch' in its code cell 2"),
        (notebook("%run other.ipynb"), "only a notebook understands"),
        (notebook("%%bash\nls"), "only a notebook understands"),
        (notebook("x", language="julia"), "a notebook of julia"),
        ("not json", "is not a notebook"),
        ("[]", "is not a notebook"),
        ("[" * 100_000, "is not a notebook"),
    ],
)
def test_a_notebook_that_is_no_script_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    write_tree(tmp_path, {"n.ipynb": content})
    with pytest.raises(errors.InvalidInput) as caught:
        take_snapshot(tmp_path, script="n.ipynb")
    assert reason in caught.value.message
    assert caught.value.next_step
