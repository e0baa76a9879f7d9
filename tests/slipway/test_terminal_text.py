"""Lines of a log on a terminal: colours stay, nothing else passes, progress bars do not flood."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.terminal_text import LineReader, tame

_ALLOWED = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_DANGER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Clock:
    """A clock that stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain \t text é 数", "plain \t text é 数"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m\x1b[0m"),
        ("\x1b[38;2;1;2;3mrgb", "\x1b[38;2;1;2;3mrgb\x1b[0m"),
        ("a\x1b[2Jb\x1b[10;10Hc\x1b[?1049hd\x1b[6ne", "abcde"),
        ("a\x1b]0;title\x07b\x1b]2;x\x1b\\c", "abc"),
        ("\x1b]8;;http://evil.test\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("a\x1bP+q544e\x1b\\b\x1b_apc\x1b\\c\x1b^pm\x1b\\d\x1bXsos\x1b\\e", "abcde"),
        ("a\x1bcb\x1b(0c\x1b7d\x1b=e", "abcde"),
        ("a\x9b2Jb\x9d0;t\x07c\x90x\x9cd", "abcd"),
        ("a\x1b]0;never ends", "a"),
        ("a\x1b[31", "a"),
        ("a\x1b", "a"),
        ("bell\x07 null\x00 del\x7f", "bell\\x07 null\\x00 del\\x7f"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x1b[" + "1;" * 100 + "mx", "x"),
    ],
)
def test_colours_stay_and_nothing_else_drives_the_terminal(line: str, shown: str) -> None:
    assert tame(line, colours=True) == shown
    assert tame(line, colours=False) == _ALLOWED.sub("", shown)


@given(st.text(alphabet=st.sampled_from("a;[]m0123?\\PX^_c\x1b\x07\x9b\x9c\x9d\x90\r\x00\u202e(")))
def test_no_line_at_all_drives_the_terminal(line: str) -> None:
    for colours in (True, False):
        shown = tame(line, colours=colours)
        rest = _ALLOWED.sub("", shown) if colours else shown
        assert not _DANGER.search(rest), repr(shown)


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(min_value=0, max_value=300)))
def test_lines_are_the_same_wherever_the_log_is_cut(data: bytes, cuts: list[int]) -> None:
    data = data.replace(b"\r", b"-")
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = LineReader(Clock())
    lines = [line for start, end in pairwise(places) for line in reader.read(data[start:end])]
    expected = data.decode(errors="replace").split("\n")
    assert lines + reader.flush() == (expected if expected[-1] else expected[:-1])


def test_what_a_carriage_return_overwrites_is_left_out() -> None:
    reader = LineReader(Clock())
    assert reader.read(b"dos\r\n10%\r50%\r100%\nnext") == ["dos", "100%"]
    assert reader.flush() == ["next"]


def test_a_progress_bar_is_shown_now_and_then() -> None:
    clock = Clock()
    reader = LineReader(clock)
    shown = []
    for percent in range(100):
        clock.now += 0.1
        shown += reader.read(f"\r{percent}%".encode())
    assert len(shown) == 4
    assert reader.read(b"\n") == ["99%"]


def test_a_bar_that_ends_each_drawing_with_a_return_is_shown_too() -> None:
    clock = Clock()
    reader = LineReader(clock)
    shown = []
    for percent in range(100):
        clock.now += 0.1
        shown += reader.read(f"{percent}%\r".encode())
    assert 4 <= len(shown) <= 5
    assert all(re.fullmatch(r"\d+%", line) for line in shown)
    assert reader.flush() == ["99%"]


def test_a_line_that_never_ends_does_not_fill_the_memory() -> None:
    reader = LineReader(Clock())
    lines = [line for _ in range(100) for line in reader.read(b"x" * 10_000)]
    assert sum(map(len, lines)) + len("".join(reader.flush())) == 1_000_000
    assert max(map(len, lines)) <= 16_384
