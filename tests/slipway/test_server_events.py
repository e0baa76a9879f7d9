"""Reading server-sent events, however their bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway import errors
from slipway.server_events import LONGEST_EVENT_BYTES, ServerEvent, read_events

STREAM = (
    '\ufeff: hello\n\nid: 1\nevent: log\ndata: {"a":\ndata:  1}\n\n'
    "data:é\r\nid:2\r\n\r\nevent: x\rdata\r\r"
    "retry: 5\nunknown: y\nid: a\0b\ndata: last\n\n: comment\nevent: cut\ndata: off"
).encode()
EVENTS = [
    ServerEvent("log", b'{"a":\n 1}', "1"),
    ServerEvent("message", "é".encode(), "2"),
    ServerEvent("x", b"", "2"),
    ServerEvent("message", b"last", "2"),
]


@given(cuts=st.lists(st.integers(min_value=0, max_value=len(STREAM))))
def test_events_are_the_same_wherever_the_stream_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(places)]
    assert list(read_events(pieces)) == EVENTS


def test_an_id_is_remembered_from_the_connection_before() -> None:
    assert list(read_events([b"data: x\n\n"], last_id="7")) == [ServerEvent("message", b"x", "7")]


@pytest.mark.parametrize("piece", [b"x" * 1_000_000, b"data: " + b"x" * 1_000_000 + b"\n"])
def test_an_event_that_never_ends_is_refused_in_bounded_memory(piece: bytes) -> None:
    pieces = (piece for _ in range(2 * LONGEST_EVENT_BYTES // len(piece)))
    with pytest.raises(errors.UnexpectedAnswer, match="16 MiB"):
        list(read_events(pieces))
