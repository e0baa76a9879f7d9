"""docs/strategies.md: its code runs, its words are words, and its commands name real ones."""

import re
from pathlib import Path

import pytest

from slipway.schemas.strategy import StrategyError, parse_strategy
from tests.slipway.distributed.conftest import ROOT, RunRanks

pytestmark = pytest.mark.ranks

PAGE = (ROOT / "docs" / "strategies.md").read_text()
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = _BLOCK.findall(PAGE)
_WORD = re.compile(r"(?:auto|ddp|fsdp|zero[123]|pipeline|tensor|ps)(?:[=:*+][\w=:*+]*)?\Z")
# What a reader puts a number for.
_PLACE = re.compile(r"(?<==)(?:MACHINES|[NK])\b")


def test_the_script_of_the_page_trains_and_gives_the_weights(
    run_ranks: RunRanks, tmp_path: Path
) -> None:
    script = next(code for kind, code in BLOCKS if kind == "python")
    assert "steps % 500" in script
    script = script.replace("steps % 500", "steps % 6")  # the data here is small
    ends = run_ranks(
        2, "run_page", environment={"SLIPWAY_CHECKPOINT_DIR": str(tmp_path)}, script=script
    )
    assert ends[0].value == {"steps": 6, "weights": 2}
    assert ends[1].value == {"steps": 6, "weights": 0}
    assert [entry.name for entry in tmp_path.glob("step-*")] == ["step-0000000006"]


def _words() -> list[str]:
    inline = re.findall(r"`([^`\n]+)`", _BLOCK.sub("", PAGE))
    strategies = {word for word in inline if _WORD.match(word)}
    commands = "\n".join(code for kind, code in BLOCKS if kind == "")
    strategies |= set(re.findall(r"(?:--strategy |SLIPWAY_STRATEGY=)(\S+)", commands))
    return sorted(_PLACE.sub("2", word) for word in strategies)


@pytest.mark.parametrize("word", _words())
def test_every_word_of_the_page_is_one(word: str) -> None:
    assert word == "auto" or any(_fits(word, world_size) for world_size in range(2, 9))


def _fits(word: str, world_size: int) -> bool:
    parsed = parse_strategy(word)
    try:
        parsed.layout(world_size)
    except StrategyError:
        return False
    return True


def test_the_page_names_every_kind_of_strategy() -> None:
    kinds = {re.split(r"[=:*+]", word)[0] for word in _words()}
    assert kinds >= {"auto", "ddp", "zero1", "zero2", "zero3", "pipeline", "tensor", "ps"}
