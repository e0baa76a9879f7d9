"""The grammar of strategies: what a word means for how many ranks, and what a wrong one is told."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.schemas.strategy import (
    Consistency,
    Layout,
    Part,
    Schedule,
    Servers,
    Sharing,
    Strategy,
    StrategyError,
    parse_strategy,
)


@pytest.mark.parametrize(
    ("word", "ranks", "layout"),
    [
        ("ddp", 4, Layout(replicas=4)),
        ("ddp=4", 4, Layout(replicas=4)),
        ("zero1", 3, Layout(replicas=3)),
        ("zero2", 3, Layout(shards=3)),
        ("zero3", 8, Layout(shards=8)),
        ("fsdp", 8, Layout(shards=8)),
        ("zero3+offload", 2, Layout(shards=2)),
        ("ddp=2*zero3", 8, Layout(replicas=2, shards=4)),
        ("pipeline", 4, Layout(pipeline=4)),
        ("pipeline=2:1f1b", 4, Layout(pipeline=2, replicas=2)),
        ("pipeline=2*zero3", 8, Layout(pipeline=2, shards=4)),
        ("pipeline=2*zero3+offload", 4, Layout(pipeline=2, shards=2)),
        ("tensor", 2, Layout(tensor=2)),
        ("tensor=2", 6, Layout(replicas=3, tensor=2)),
        ("tensor=2*ddp", 6, Layout(replicas=3, tensor=2)),
        ("pipeline*tensor=2", 8, Layout(pipeline=4, tensor=2)),
        ("pipeline=2*tensor=2*ddp=2", 8, Layout(pipeline=2, replicas=2, tensor=2)),
        ("pipeline=2*tensor=2", 8, Layout(pipeline=2, replicas=2, tensor=2)),
        ("ps", 3, Layout(servers=1, workers=2)),
        ("ps=2:async", 3, Layout(servers=2, workers=1)),
        (" ZeRO3 ", 2, Layout(shards=2)),
    ],
)
def test_a_word_lays_ranks_out(word: str, ranks: int, layout: Layout) -> None:
    assert parse_strategy(word).layout(ranks) == layout


@pytest.mark.parametrize(
    "word", ["ddp=4", "zero3+offload", "pipeline=4", "tensor=2", "ps=2:async", "ddp=2*zero3=2"]
)
def test_with_one_rank_every_word_means_plain_training(word: str) -> None:
    assert parse_strategy(word).layout(1) == Layout()


@pytest.mark.parametrize(
    ("word", "servers"),
    [
        ("ps", Servers()),
        ("ps=2", Servers(2)),
        ("ps:async", Servers(1, Consistency.ASYNCHRONOUS)),
        ("ps=1:ssp=3", Servers(1, Consistency.STALE_SYNCHRONOUS, 3)),
        ("ps:ssp=0", Servers(1, Consistency.STALE_SYNCHRONOUS, 0)),
    ],
)
def test_a_parameter_server_says_how_many_and_how_far_apart(word: str, servers: Servers) -> None:
    assert parse_strategy(word).servers == servers


def test_a_word_says_what_is_shared_and_in_which_order_stages_work() -> None:
    assert parse_strategy("ddp=2*zero3").sharing is Sharing.ZERO3
    assert parse_strategy("tensor=2").sharing is Sharing.DDP
    assert parse_strategy("pipeline=2").schedule is Schedule.ONE_FORWARD_ONE_BACKWARD
    assert parse_strategy("pipeline=2:gpipe*zero1").schedule is Schedule.GPIPE
    assert parse_strategy("pipeline=2*zero2+offload").offload
    assert parse_strategy("auto").is_auto


@pytest.mark.parametrize(
    ("word", "message", "next_step"),
    [
        ("", "is empty", "ddp"),
        ("x" * 500, "too long", "ddp"),
        ("dpp", '"dpp" is not a strategy', "Did you mean ddp?"),
        ("zero4", '"zero4" is not a strategy', "Did you mean zero"),
        ("ddp**tensor=2", '"" is not a strategy', "Strategies are"),
        ("tensor=x", 'has "x" where a number', "tensor=2"),
        ("tensor=0", 'has "0" where a number', "tensor=2"),
        ("tensor=", 'has "" where a number', "tensor=2"),
        ("tensor=99999999", "where a number", "tensor=2"),
        ("tensor:1f1b", "only a pipeline has", "pipeline=2:1f1b"),
        ("pipeline=2:zebra", '"zebra" is not a schedule', "interleaved"),
        ("ddp+offload", "goes with zero2 and zero3", "zero3+offload"),
        ("zero1+offload", "goes with zero2 and zero3", "zero3+offload"),
        ("ddp*ddp=2", "names ddp twice", "once"),
        ("zero2=2*zero3", "in 2 ways: zero2 and zero3", "Keep one"),
        ("ddp=2*zero1", "in 2 ways: ddp and zero1", "ddp=2*zero3"),
        ("ddp*zero3", "leaves out more than one size", "ddp=2*zero3"),
        ("ps*ddp", "cannot be combined", "ps=2:async"),
        ("auto*ddp", "auto cannot be combined", "auto alone"),
        ("ps=2:lazy", "is not a parameter server", "ps=1:ssp=3"),
        ("ps=2:async=3", "bounds how far", "ps:ssp=3"),
        ("ps=no", 'has "no" where a number', "number of ranks"),
    ],
)
def test_a_wrong_word_is_told_what_to_write_instead(
    word: str, message: str, next_step: str
) -> None:
    with pytest.raises(StrategyError) as caught:
        parse_strategy(word)
    assert message in caught.value.message
    assert next_step in caught.value.next_step
    assert caught.value.next_step in str(caught.value)


@pytest.mark.parametrize(
    ("word", "ranks", "message", "next_step"),
    [
        (
            "tensor=2",
            3,
            "tensor=2 needs a world size divisible by 2; this job has 3 ranks.",
            "Start 2 or 4 ranks",
        ),
        ("pipeline=4", 2, "divisible by 4; this job has 2 ranks", "Start 4 ranks"),
        ("pipeline=2*zero3", 5, "divisible by 2; this job has 5 ranks", "Start 4 or 6 ranks"),
        ("ddp=2", 3, "ddp=2 is for 2 ranks; this job has 3 ranks", "leave one size out"),
        ("pipeline=2*ddp=2", 8, "is for 4 ranks; this job has 8 ranks", "Start 4 ranks"),
        ("ps=4", 3, "needs 4 ranks as servers", "Start 5 ranks or more"),
        ("ddp", 0, "0 ranks cannot train", "at least one"),
        ("auto", 2, "before it has chosen", "Choose"),
    ],
)
def test_a_word_that_does_not_fit_the_ranks_says_how_many_would(
    word: str, ranks: int, message: str, next_step: str
) -> None:
    with pytest.raises(StrategyError) as caught:
        parse_strategy(word).layout(ranks)
    assert message in caught.value.message
    assert next_step in caught.value.next_step


def _sized(name: str) -> st.SearchStrategy[Part]:
    schedules = st.sampled_from([None, *Schedule]) if name == "pipeline" else st.none()
    offload = st.booleans() if name in ("zero2", "zero3") else st.just(False)
    return st.builds(Part, st.just(name), st.integers(1, 8), schedules, offload)


_grids = st.tuples(
    st.sampled_from([(), ("pipeline",)]),
    st.sampled_from([("ddp",), ("zero1",), ("zero2",), ("zero3",), ("ddp", "zero3")]),
    st.sampled_from([(), ("tensor",)]),
).flatmap(lambda names: st.tuples(*(_sized(name) for group in names for name in group)))


@given(_grids)
def test_any_grid_survives_being_written_and_covers_every_rank(parts: tuple[Part, ...]) -> None:
    strategy = Strategy(parts=parts)
    assert parse_strategy(str(strategy)) == strategy
    ranks = math.prod(part.size or 1 for part in parts)
    layout = strategy.layout(ranks)
    if ranks > 1:
        assert layout.pipeline * layout.replicas * layout.shards * layout.tensor == ranks


@given(st.text(alphabet="dpzero123+offloadtensrpi=:*fab ", max_size=40))
def test_any_text_is_a_strategy_or_is_told_why_not(text: str) -> None:
    next_step = ""
    try:
        parse_strategy(text)
    except StrategyError as error:
        next_step = error.next_step
    else:
        return
    assert next_step
