"""What slipway.distributed promises: its names, and that the rest of the SDK needs no torch."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import slipway.distributed as dist
from slipway.errors import SlipwayError
from tests.slipway.distributed.conftest import RunRanks

pytestmark = pytest.mark.ranks

ROOT = Path(__file__).resolve().parents[3]


def test_the_public_names_are_these() -> None:
    assert dist.__all__ == [
        "EXIT_STOPPED",
        "CheckpointError",
        "Checkpoints",
        "Choice",
        "DistributedError",
        "Facts",
        "PeerLost",
        "Retention",
        "Share",
        "Strategy",
        "StrategyError",
        "StrategyNotPossible",
        "Trainer",
        "choose_strategy",
        "parse_strategy",
        "prepare",
    ]
    assert all(hasattr(dist, name) for name in dist.__all__)
    assert dist.EXIT_STOPPED == 75


def test_prepare_and_the_trainer_take_these() -> None:
    assert list(inspect.signature(dist.prepare).parameters) == [
        "model",
        "optimizer_factory",
        "loss_fn",
        "strategy",
        "schedule",
        "microbatches",
        "split_points",
        "tensor_plan",
        "clip_norm",
        "checkpoints",
        "device",
        "timeout_s",
    ]
    public = [name for name in vars(dist.Trainer) if not name.startswith("_")]
    assert sorted(public) == [
        "close",
        "evaluate",
        "is_main",
        "resume",
        "save",
        "shard",
        "share",
        "should_stop",
        "state_dict",
        "step",
        "stop",
    ]


def test_errors_are_errors_of_the_sdk_with_a_next_step() -> None:
    for error in (dist.StrategyNotPossible, dist.PeerLost, dist.CheckpointError):
        assert issubclass(error, dist.DistributedError)
        assert issubclass(error, SlipwayError)


def test_the_sdk_and_the_grammar_work_where_there_is_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    script = "import slipway, slipway.schemas.strategy as s; s.parse_strategy('zero3').layout(4)"
    subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'platform'}"},
        check=True,
        timeout=60,
    )


def test_a_rank_needs_torch_and_nothing_else_of_what_the_sdk_needs(run_ranks: RunRanks) -> None:
    imported = run_ranks(1, "imported_packages")[0].value
    assert "torch" in imported
    assert not {"pydantic", "httpx"} & set(imported)
