"""The filter of runs: what it understands, and where it says a mistake stands."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portal.core.errors import InvalidInput
from portal.experiments.filters import (
    FieldKind,
    FilterCondition,
    RunField,
    parse_field,
    parse_filter,
)

pytestmark = pytest.mark.postgres

LOGGED = st.sampled_from([FieldKind.METRIC, FieldKind.PARAM, FieldKind.TAG])
KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0`"), min_size=1, max_size=40)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def test_a_filter_is_read_as_mlflow_reads_it() -> None:
    parsed = parse_filter(
        "metrics.loss < 0.5 AND params.`learning rate` = '0.1' and tags.\"a b\" LIKE '%x%' "
        "and attributes.status != 'FAILED' and run_name ILIKE 'calm%' and start_time >= 17 "
        "and params.opt in ('sgd', 'adam') and tags.team is not null "
        "and metric.val/acc.top1 >= 1e-3"
    )
    metric, param, tag = FieldKind.METRIC, FieldKind.PARAM, FieldKind.TAG
    assert parsed == (
        FilterCondition(RunField(metric, "loss"), "<", 0.5),
        FilterCondition(RunField(param, "learning rate"), "=", "0.1"),
        FilterCondition(RunField(tag, "a b"), "like", "%x%"),
        FilterCondition(RunField(FieldKind.ATTRIBUTE, "status"), "!=", "FAILED"),
        FilterCondition(RunField(FieldKind.ATTRIBUTE, "run_name"), "ilike", "calm%"),
        FilterCondition(RunField(FieldKind.ATTRIBUTE, "start_time"), ">=", 17.0),
        FilterCondition(RunField(param, "opt"), "in", ("sgd", "adam")),
        FilterCondition(RunField(tag, "team"), "is not null", None),
        FilterCondition(RunField(metric, "val/acc.top1"), ">=", 0.001),
    )


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("metrics.loss", 13, "must be compared with a number"),
        ("metrics.loss > '1'", 16, "must be compared with a number"),
        ("params.lr > '1'", 11, "must be compared with text"),
        ("params.lr = 1", 13, "text in quotes"),
        ("metrics.a > 1 or metrics.b > 1", 15, "only `and`"),
        ("metrics.a > 1 and", 18, "a condition is missing"),
        ("loss > 1", 1, "no attribute called loss"),
        ("metricz.loss > 1", 1, "no kind of field called metricz"),
        ("params.lr = 'x", 13, "never closed"),
        ("datasets.size = 'x'", 10, "datasets have no size"),
        ("metrics.a > 1 ; drop table runs", 15, "unexpected character"),
        ("attributes.status is null", 22, "`is null`"),
    ],
)
def test_a_mistake_is_told_with_its_position(text: str, at: int, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_filter(text)
    assert refused.value.message.startswith(f"At position {at}: ")
    assert words in refused.value.message
    assert refused.value.next_step


@settings(max_examples=150, deadline=None)
@given(kind=LOGGED, key=KEYS, text=TEXTS, number=NUMBERS)
def test_any_key_and_value_comes_back_as_it_was_written(
    kind: FieldKind, key: str, text: str, number: float
) -> None:
    field = RunField(kind, key)
    quoted = "'" + text.replace("'", "''") + "'"
    value = repr(number) if kind is FieldKind.METRIC else quoted
    expected = number if kind is FieldKind.METRIC else text
    assert parse_filter(f"{field} = {value}") == (FilterCondition(field, "=", expected),)
    assert parse_field(str(field), name="sort") == field


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=80) | st.from_regex(r"[a-z.`'\"<>=() 0-9]{0,60}"))
def test_whatever_is_typed_is_understood_or_refused_in_words(text: str) -> None:
    refused = _refusal_of(text)
    assert refused is None or (refused.field == "filter" and refused.next_step)


def _refusal_of(text: str) -> InvalidInput | None:
    try:
        parse_filter(text)
    except InvalidInput as refused:
        return refused
    return None
