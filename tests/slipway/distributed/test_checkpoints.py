"""Checkpoints: written while training goes on, whole or not at all, readable by other grids."""

import dataclasses
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from slipway.distributed.manifest import file_facts, read_manifest, write_manifest
from tests.slipway.distributed.conftest import RunRanks
from tests.turns import thorough_after

pytestmark = pytest.mark.ranks

TOLERANCE = 1e-9


@pytest.mark.parametrize(
    ("saved_by", "ranks", "resumed_by", "other_ranks"),
    thorough_after(
        1,
        [
            ("zero3", 4, "zero3", 2),
            ("pipeline:interleaved", 2, "tensor", 2),
            ("zero3", 4, "pipeline=2*ddp", 4),
            ("tensor=2*zero3", 4, "zero1", 2),
            ("zero1", 4, "zero2+offload", 2),
            ("ddp", 2, "ps=2", 4),
            ("ps=2", 4, "ddp", 1),
            ("ddp", 1, "pipeline=2*zero3", 4),
        ],
    ),
)
def test_a_checkpoint_is_resumed_by_other_ranks_and_another_strategy(
    run_ranks: RunRanks,
    tmp_path: Path,
    saved_by: str,
    ranks: int,
    resumed_by: str,
    other_ranks: int,
) -> None:
    run_ranks(ranks, "save_and_go_on", strategy=saved_by, folder=str(tmp_path), at_step=5, more=2)
    ends = run_ranks(other_ranks, "resume_and_finish", strategy=resumed_by, folder=str(tmp_path))
    assert ends[0].value["started"] == 5
    assert ends[0].value["difference"] <= TOLERANCE


@pytest.mark.thorough
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_resumed(
    run_ranks: RunRanks, tmp_path: Path
) -> None:
    for step in (3, 5):
        run_ranks(2, "save_and_go_on", strategy="zero3", folder=str(tmp_path), at_step=step, more=0)
    damaged = next((tmp_path / "step-0000000005").glob("__1_*"))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)

    ends = run_ranks(2, "resume_and_finish", strategy="zero3", folder=str(tmp_path))

    assert ends[0].value["started"] == 3
    assert ends[0].value["difference"] <= TOLERANCE
    assert damaged.name in ends[0].log


@pytest.mark.parametrize(
    "harm", thorough_after(1, ["manifest cut short", "manifest changed", "file missing"])
)
def test_a_torn_checkpoint_is_passed_over(run_ranks: RunRanks, tmp_path: Path, harm: str) -> None:
    for step in (3, 5):
        run_ranks(1, "save_and_go_on", strategy="ddp", folder=str(tmp_path), at_step=step, more=0)
    newest = tmp_path / "step-0000000005"
    manifest = newest / "manifest.json"
    if harm == "file missing":
        next(newest.glob("*.distcp")).unlink()
    elif harm == "manifest changed":
        manifest.write_text(manifest.read_text().replace('"step": 5', '"step": 6'))
    else:
        manifest.write_text(manifest.read_text()[:-50])

    ends = run_ranks(1, "resume_and_finish", strategy="ddp", folder=str(tmp_path))

    assert ends[0].value["started"] == 3
    assert "Passing over checkpoint step-0000000005" in ends[0].log


@pytest.mark.parametrize("victim", thorough_after(1, [0, 1]))
def test_a_rank_killed_while_saving_leaves_no_half_checkpoint(
    run_ranks: RunRanks, tmp_path: Path, victim: int
) -> None:
    run_ranks(
        2, "die_while_saving", strategy="zero3", folder=str(tmp_path), victim=victim, fails=True
    )
    whole = sorted(entry.name for entry in tmp_path.glob("step-*"))
    assert "step-0000000003" in whole
    ends = run_ranks(2, "resume_and_finish", strategy="zero3", folder=str(tmp_path))
    assert ends[0].value["started"] == (6 if "step-0000000006" in whole else 3)
    assert ends[0].value["difference"] <= TOLERANCE


def test_the_newest_and_every_so_many_steps_are_kept(run_ranks: RunRanks, tmp_path: Path) -> None:
    run_ranks(2, "save_by_itself", folder=str(tmp_path), steps=11, last=2, every=4)
    kept = sorted(int(entry.name.removeprefix("step-")) for entry in tmp_path.iterdir())
    assert kept == [4, 8, 10]


def test_the_best_by_metric_is_kept(run_ranks: RunRanks, tmp_path: Path) -> None:
    metrics = [3.0, 1.0, float("nan"), 2.0, 4.0]
    run_ranks(
        1, "save_by_itself", folder=str(tmp_path), steps=5, last=1, best="min", metrics=metrics
    )
    kept = sorted(int(entry.name.removeprefix("step-")) for entry in tmp_path.iterdir())
    assert kept == [2, 5]


@pytest.mark.parametrize(
    ("strategy", "ranks", "stopped_rank"),
    thorough_after(
        2,
        [("ddp", 2, 1), ("zero3", 2, 0), ("pipeline", 2, 1), ("ps=1", 3, 1), ("ps=1:async", 3, 0)],
    ),
)
def test_a_job_asked_to_stop_saves_and_says_by_its_exit_code_that_it_can_go_on(
    run_ranks: RunRanks, tmp_path: Path, strategy: str, ranks: int, stopped_rank: int
) -> None:
    ends = run_ranks(
        ranks,
        "stop_when_asked",
        strategy=strategy,
        folder=str(tmp_path),
        stopped_rank=stopped_rank,
        at_step=3,
        fails=True,
    )
    assert [end.code for end in ends] == [75] * ranks, "\n".join(end.log for end in ends)
    ends = run_ranks(ranks, "resume_and_finish", strategy=strategy, folder=str(tmp_path))
    assert ends[0].value["started"] >= 3
    if "async" not in strategy:
        assert ends[0].value["started"] == 4
        assert ends[0].value["difference"] <= TOLERANCE


def test_a_job_without_a_folder_ends_as_terminated(run_ranks: RunRanks) -> None:
    ends = run_ranks(
        2, "stop_when_asked", strategy="ddp", folder=None, stopped_rank=0, at_step=3, fails=True
    )
    assert [end.code for end in ends] == [143, 143]


def test_another_model_is_told_what_does_not_fit(run_ranks: RunRanks, tmp_path: Path) -> None:
    run_ranks(2, "save_and_go_on", strategy="ddp", folder=str(tmp_path), at_step=2, more=0)
    ends = run_ranks(2, "resume_another_model", folder=str(tmp_path))
    for end in ends:
        assert "head.weight has shape [5, 8], in the model [9, 8]" in end.value
        assert "Next step" in end.value


def test_every_rank_is_told_when_a_checkpoint_cannot_be_written(
    run_ranks: RunRanks, tmp_path: Path
) -> None:
    (tmp_path / "a-file").write_text("not a folder")
    ends = run_ranks(2, "save_where_nothing_can_be_written", folder=str(tmp_path / "a-file"))
    assert all("could not be written" in end.value for end in ends)


@pytest.mark.parametrize("kind", ["call", "attribute"])
def test_an_index_that_would_run_code_is_refused(
    run_ranks: RunRanks, tmp_path: Path, kind: str
) -> None:
    run_ranks(1, "save_and_go_on", strategy="ddp", folder=str(tmp_path), at_step=2, more=0)
    folder = tmp_path / "step-0000000002"
    marker = tmp_path / "ran"
    trap = _Trap(str(marker)) if kind == "call" else _Reach()
    (folder / ".metadata").write_bytes(pickle.dumps(trap))
    manifest = read_manifest(folder)
    files = dict(manifest.files) | {".metadata": file_facts(folder / ".metadata")}
    (folder / "manifest.json").unlink()
    write_manifest(folder, dataclasses.replace(manifest, files=files))

    ends = run_ranks(1, "resume_and_finish", strategy="ddp", folder=str(tmp_path), fails=True)

    assert ends[0].code == 1
    assert "which no index does" in ends[0].log
    assert not marker.exists()


class _Trap:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.mkdir, (self.path,)


class _Reach:
    """Unpickled, it is a method of a class that an index may name."""

    def __reduce__(self) -> Any:
        return getattr, (Path, "unlink")
