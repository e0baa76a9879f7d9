"""Bytes that survive every cut: frames between gateway and replica, blocks of the capture log."""

import contextlib
import tempfile
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.gateway.capture import PredictionIds
from workers.gateway.capture_log.format import (
    BLOCK,
    MAGIC,
    Entry,
    entry,
    pack_block,
    pack_plain_block,
)
from workers.gateway.capture_log.reader import read_parts
from workers.gateway.http_parser import BadRequest, read_head
from workers.serving.wire import (
    LARGE_FRAME_BYTES,
    BrokenFrame,
    FrameReader,
    ResponseFrame,
    pack_answers,
    pack_plain_answers,
    pack_plain_requests,
    pack_requests,
    single_answer,
    single_request,
    unpack_answers,
    unpack_plain_answers,
    unpack_plain_requests,
    unpack_requests,
)

Row = tuple[bytes, bytes, bytes]
BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=8)


@given(BODIES, st.integers(1, 64))
@settings(max_examples=50)
def test_frames_arrive_as_they_were_sent_however_they_are_cut(
    bodies: list[bytes], piece: int
) -> None:
    request_frames = [(number, 2, len(body) // 2, body) for number, body in enumerate(bodies)]
    response_frames = [
        ResponseFrame(number, 200, 1, 3, 7, body) for number, body in enumerate(bodies)
    ]
    sent = pack_requests(request_frames) + pack_answers(response_frames)
    sent += pack_plain_requests(5, bodies) + pack_plain_answers(6, 7, bodies)
    reader = FrameReader(LARGE_FRAME_BYTES)
    frames = [
        frame for at in range(0, len(sent), piece) for frame in reader.feed(sent[at : at + piece])
    ]
    requests, answers = unpack_requests(frames[0]), unpack_answers(frames[1])
    assert [
        (request.number, request.contract, request.head_len, request.body) for request in requests
    ] == request_frames
    assert answers == response_frames
    assert unpack_plain_requests(frames[2]) == (5, bodies)
    assert unpack_plain_answers(frames[3]) == (6, 7, bodies)


@given(BODIES, st.integers(0, 60), st.integers(0, 255))
@settings(max_examples=200)
def test_what_is_taken_as_a_frame_of_one_is_one(bodies: list[bytes], at: int, value: int) -> None:
    request_frames = [(number, 2, 1, body) for number, body in enumerate(bodies)]
    response_frames = [
        ResponseFrame(number, 200, 1, 3, 7, body) for number, body in enumerate(bodies)
    ]
    requests, answers = pack_requests(request_frames), pack_answers(response_frames)
    assert (
        (single_request(requests) is None) == (single_answer(answers) is None) == (len(bodies) > 1)
    )
    assert single_request(answers) is None
    assert single_answer(requests) is None
    for sent in (requests, answers):
        changed = bytearray(sent)
        changed[at % len(sent)] = value
        for data in (bytes(changed), sent[:at], sent + sent, sent + b"x"):
            _takes_the_same(data)


def _takes_the_same(data: bytes) -> None:
    request, answer = single_request(data), single_answer(data)
    if request is None and answer is None:
        return
    reader = FrameReader(LARGE_FRAME_BYTES)
    (received,) = reader.feed(data)
    assert not reader.is_mid_frame
    if request is not None:
        assert unpack_requests(received) == [request]
    if answer is not None:
        assert unpack_answers(received) == [answer]


@given(st.binary(max_size=200), st.integers(0, 70), BODIES)
@settings(max_examples=200)
def test_bytes_that_are_no_frames_break_nothing(data: bytes, at: int, bodies: list[bytes]) -> None:
    whole = pack_plain_requests((1 << 32) - len(bodies), bodies)
    for sent in (data, whole[:at] + data[:1] + whole[at + 1 :], whole + data):
        with contextlib.suppress(BrokenFrame):
            for frame in FrameReader().feed(sent):
                for unpack in (unpack_requests, unpack_plain_requests, unpack_plain_answers):
                    with contextlib.suppress(BrokenFrame):
                        unpack(frame)


def test_numbers_that_are_too_high_are_no_frame() -> None:
    (received,) = FrameReader().feed(pack_plain_requests((1 << 32) - 1, [b"a", b"b"]))
    with pytest.raises(BrokenFrame):
        unpack_plain_requests(received)


@given(
    st.lists(st.tuples(st.booleans(), BODIES), min_size=1, max_size=4),
    st.integers(0, 60),
    st.integers(1, 900),
)
@settings(max_examples=100)
def test_a_torn_block_takes_no_other_with_it(
    blocks: list[tuple[bool, list[bytes]]], torn: int, piece: int
) -> None:
    packed = [_packed(place % 2, *block) for place, block in enumerate(blocks)]
    whole = b"".join(packed)
    assert _read(whole, piece) == [_those(blocks, 0), _those(blocks, 1)]
    cut = whole[: len(whole) - 1 - torn % len(packed[-1])]
    assert _read(cut, piece) == [_those(blocks[:-1], 0), _those(blocks[:-1], 1)]


def _packed(endpoint: int, is_plain: bool, bodies: list[bytes]) -> bytes:
    context = b'{"endpoint":"%d"}' % endpoint
    if not is_plain:
        entries = [_entry(number, body) for number, body in enumerate(bodies)]
        return pack_block(context, entries)
    names = [_name(number) for number in range(len(bodies))]
    keys, took_us = [b"key"] * len(bodies), list(range(len(bodies)))
    return pack_plain_block(
        context, 1, names, keys, took_us, bodies, [body[::-1] for body in bodies]
    )


def _those(blocks: list[tuple[bool, list[bytes]]], endpoint: int) -> list[Row]:
    return sorted(
        (_name(number), body, body[::-1])
        for _, bodies in blocks[endpoint::2]
        for number, body in enumerate(bodies)
    )


def test_a_block_that_claims_to_be_huge_takes_no_memory() -> None:
    lie = BLOCK.pack(MAGIC, 2**32 - 1, 1, 0, 0) + b"x" * 100
    tracemalloc.start()
    assert _read(lie, 1) == [[], []]
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def _read(segment: bytes, piece: int) -> list[list[Row]]:
    """Return names, inputs and outputs of each of two endpoints, sorted."""
    with tempfile.TemporaryFile() as file:
        file.write(segment)
        file.flush()
        pieces = list(read_parts(file, piece, lambda: None))
    by_endpoint: list[list[Row]] = [[], []]
    for part in [part for parts in pieces for part in parts]:
        names = [name.encode() for name in part.names.to_pylist()]
        rows = zip(names, part.requests.to_pylist(), part.responses.to_pylist(), strict=True)
        by_endpoint[int(part.context["endpoint"])] += rows
    return [sorted(rows) for rows in by_endpoint]


def _name(number: int) -> bytes:
    return b"prd_%026d" % number


def _entry(number: int, body: bytes) -> Entry:
    return entry(_name(number), b"key", 1, 2, body, body[::-1], 0, 0, 0, 0, 200)


def test_ids_are_unique_and_sort_as_they_were_given() -> None:
    ids = PredictionIds()
    # Beyond what the last digits count to, at once and by steps that meet it.
    named = [*ids.next_ids(3, 1), *ids.next_ids(5000, 1), *ids.next_ids(0, 1)]
    while len(named) < 13_000:
        named += ids.next_ids(37, 1)
    assert len(set(named)) == len(named)
    assert named == sorted(named)
    assert {len(name) for name in named} == {30}


@given(st.binary(max_size=120))
@settings(max_examples=200)
def test_any_head_is_read_or_refused(block: bytes) -> None:
    with contextlib.suppress(BadRequest):
        read_head(b"POST / HTTP/1.1\r\nHost: a\r\n" + block)
