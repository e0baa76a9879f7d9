"""Datasets through the SDK and the command line, against a real portal and its worker."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import slipway
from slipway import dataset_cache, errors
from slipway.cli.main import main
from slipway.datasets import dataset
from slipway.schemas.datasets import PIECE_BYTES
from tests.live import ROOT, LivePortal


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of data, one file larger than a piece."""
    folder = tmp_path / "data"
    (folder / "images").mkdir(parents=True)
    (folder / "train.csv").write_text("x,y\n1,a\n2,b\n,c\n")
    (folder / "images" / "1.png").write_bytes(b"pixels")
    (folder / "large.bin").write_bytes(os.urandom(PIECE_BYTES + 5))
    return folder


def test_a_folder_is_pushed_and_read_as_path_and_table(
    alice: slipway.Client, project: str, data: Path
) -> None:
    steps: list[tuple[int, int]] = []
    pushed = alice.datasets.push(
        "digits", data, project=project, progress=lambda *done: steps.append(done)
    )
    assert (pushed.reference, pushed.files, pushed.rows) == ("digits:1", 3, 3)
    assert steps[-1][1] == PIECE_BYTES + 5 + 6 + 15
    again = alice.datasets.push("digits", data, project=project)
    assert again.id == pushed.id, "the same files make no second version"
    loaded = dataset("digits", project=project, client=alice)
    assert (loaded.reference, loaded.digest) == ("digits:1", pushed.digest)
    for path in data.rglob("*.*"):
        assert (loaded.path / path.relative_to(data)).read_bytes() == path.read_bytes()
    assert loaded.arrow().to_pydict() == {"x": [1, 2, None], "y": ["a", "b", "c"]}
    assert list(loaded.pandas()["y"]) == ["a", "b", "c"]
    with pytest.raises(errors.InvalidInput, match="no table other"):
        loaded.arrow("other.csv")
    (data / "train.csv").write_text("x,y\n5,a\n")
    (data / "images" / "1.png").unlink()
    alice.datasets.push("digits", data, project=project, note="fewer")
    changes = alice.datasets.changes("digits", project=project)
    assert (changes.removed.paths, changes.changed.paths) == (["images/1.png"], ["train.csv"])
    assert dataset("digits:1", project=project, client=alice).arrow().num_rows == 3
    assert dataset("digits:latest", project=project, client=alice).arrow().num_rows == 1


@pytest.mark.thorough
def test_bad_rows_are_told_with_line_and_column(
    alice: slipway.Client, project: str, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("x,y\n" + "1,2\n" * 20_000 + "one,2\n3\n")
    with pytest.raises(errors.InvalidInput) as refused:
        alice.datasets.push("bad", bad, project=project)
    assert refused.value.code == "bad_rows"
    assert "bad.csv, line 20002, column x" in str(refused.value)
    assert "bad.csv, line 20003, column y" in str(refused.value)
    assert "more." not in str(refused.value)
    assert list(alice.datasets.versions("bad", project=project)) == []
    many = tmp_path / "many.csv"
    many.write_text("x,y\n" + "1,2\n" * 20_000 + "one,2\n" * 250)
    with pytest.raises(errors.InvalidInput, match=r"… and 2\d\d more\."):
        alice.datasets.push("many", many, project=project)
    taken = alice.datasets.push("bad", bad, project=project, allow_bad_rows=True)
    assert taken.bad_rows == 2
    table = dataset("bad", project=project, client=alice).arrow()
    assert (str(table.schema.field("x").type), table.num_rows) == ("int64", 20_000)


@pytest.mark.thorough
def test_what_was_damaged_here_is_fetched_again_and_what_is_old_makes_room(
    alice: slipway.Client, project: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice.datasets.push("digits", data, project=project)
    path = dataset("digits", project=project, client=alice).path
    dataset_cache._held.popitem()[1].close()
    (path / "train.csv").chmod(0o644)
    (path / "train.csv").write_text("x,y\n9,z\n9,z\n,z\n")
    assert dataset("digits", project=project, client=alice).arrow()["x"].to_pylist()[0] == 1
    (data / "train.csv").write_text("x,y\n7,z\n")
    alice.datasets.push("digits", data, project=project)
    monkeypatch.setenv("SLIPWAY_CACHE_BYTES", str(PIECE_BYTES * 3 // 2))
    newer = dataset("digits:2", project=project, client=alice).path
    assert path.exists(), "what this process reads is never taken away"
    while dataset_cache._held:
        dataset_cache._held.popitem()[1].close()
    (data / "train.csv").write_text("x,y\n8,z\n")
    alice.datasets.push("digits", data, project=project)
    assert dataset("digits:3", project=project, client=alice).path.exists()
    assert not path.exists()
    assert not newer.exists()


@pytest.mark.thorough
def test_processes_that_ask_at_once_fetch_a_version_once(
    alice: slipway.Client, portal: LivePortal, project: str, data: Path
) -> None:
    pushed = alice.datasets.push("digits", data, project=project)
    code = (
        "import slipway\n"
        f"print(slipway.dataset('digits:1', project={project!r}).path.stat().st_ino)"
    )
    environment = os.environ | {
        "SLIPWAY_URL": portal.url,
        "SLIPWAY_TOKEN": portal.tokens["alice"],
        "PYTHONPATH": str(ROOT / "platform"),
    }
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    outputs = {reader.communicate(timeout=60)[0] for reader in readers}
    assert len(outputs) == 1, outputs
    assert outputs != {""}
    assert pushed.files == 3


@pytest.mark.thorough
def test_who_comes_later_reads_beside_who_reads_already(
    alice: slipway.Client, portal: LivePortal, project: str, data: Path
) -> None:
    alice.datasets.push("digits", data, project=project)
    path = dataset("digits", project=project, client=alice).path  # held while this process lives
    code = f"import slipway\nprint(slipway.dataset('digits:1', project={project!r}).path)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {
            "SLIPWAY_URL": portal.url,
            "SLIPWAY_TOKEN": portal.tokens["alice"],
            "PYTHONPATH": str(ROOT / "platform"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"{path}\n"


@pytest.mark.thorough
def test_the_command_line_pushes_looks_and_pulls(
    alice: slipway.Client,
    portal: LivePortal,
    project: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SLIPWAY_URL", portal.url)
    monkeypatch.setenv("SLIPWAY_TOKEN", portal.tokens["alice"])
    monkeypatch.setenv("SLIPWAY_PROJECT", project)

    def run(*arguments: str) -> Any:
        assert main(["dataset", *arguments, "--json"]) == 0, capsys.readouterr().err
        out = capsys.readouterr().out
        return json.loads(out) if out else None

    assert run("push", "digits", str(data), "-m", "first")["reference"] == "digits:1"
    (data / "train.csv").write_text("x,y\n1,a\n")
    pushed = run("push", "digits", str(data), "--type", "x=string", "--missing", "NA")
    assert pushed["reference"] == "digits:2"
    assert (pushed["settings"]["types"], pushed["settings"]["missing"]) == ({"x": "string"}, ["NA"])
    assert [summary["latest"] for summary in run("list")["items"]] == [2]
    assert [version["note"] for version in run("versions", "digits")["items"]] == ["", "first"]
    assert run("show", "digits:1")["rows"] == 3
    assert len(run("files", "digits")["items"]) == 3
    assert [column["name"] for column in run("stats", "digits")["items"]] == ["x", "y"]
    assert run("diff", "digits")["changed"]["count"] == 1
    assert run("uses", "digits")["items"] == []
    run("pull", "digits:1", "--to", str(tmp_path / "here"))
    assert (tmp_path / "here" / "train.csv").read_text().endswith(",c\n")
    run("delete", "digits:2", "--yes")
    assert run("show", "digits")["number"] == 1
    run("restore", "digits:2")
    assert run("show", "digits")["number"] == 2
    for arguments in (("diff", "digits"), ("show", "digits"), ("stats", "digits")):
        assert main(["dataset", *arguments]) == 0
        assert "x" in capsys.readouterr().out
