"""Sanitized lines of a job's log for a terminal: only colours pass, no other control sequences.

A job prints what it likes: progress bars that go back to the start of a line, titles for the
window, links, sequences that clear the screen or type on the keyboard. Only colours and weights
(SGR) of well-formed sequences pass. Everything else is removed or shown as an escape.
"""

import codecs
import re
import time
from collections.abc import Callable

from slipway.sanitize import visible

_LONGEST_LINE = 16_384
_BETWEEN_REDRAWS_S = 2.0
_RESET = "\x1b[0m"
_SEQUENCE = re.compile(
    r"\x1b\[(?P<colour>[0-9;:]{0,64}m)"  # retained: select graphic rendition
    r"|\x1b\[[0-?]*[ -/]*(?:[@-~]|$)"  # every other control sequence
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)?"  # strings: title, link, device
    r"|\x1b[ -/]*(?:[0-~]|$)"  # two-character escapes
    r"|\x9b[0-?]*[ -/]*(?:[@-~]|$)"  # the same in one byte
    r"|[\x90\x98\x9d-\x9f][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)?"
)
# Fast check, because nearly every line is plain.
_SPECIAL = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def tame(line: str, *, colours: bool) -> str:
    """Return one sanitized line. `colours` retains them, and resets them at its end."""
    if not _SPECIAL.search(line):
        return line
    kept: list[str] = []
    place, has_colour = 0, False
    for match in _SEQUENCE.finditer(line):
        kept.append(_visible_text(line[place : match.start()]))
        place = match.end()
        if colours and match["colour"] is not None:
            kept.append(match.group())
            has_colour = True
    kept.append(_visible_text(line[place:]))
    return "".join(kept) + (_RESET if has_colour else "")


class LineReader:
    """Cuts the bytes of one log into lines as they come, in bounded memory.

    What a carriage return overwrites is left out, as on a terminal, but a line that is redrawn
    over and over (a progress bar) is given every two seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""
        self._clock = clock
        self._redrawn_at = clock()

    def read(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes, without their ends."""
        text = self._begun + self._decoder.decode(data)
        *whole, self._begun = text.split("\n")
        lines = [_overwritten(line.removesuffix("\r")) for line in whole]
        if "\r" in self._begun.rstrip("\r"):
            self._begun = self._redrawn(lines)
        while len(self._begun) > _LONGEST_LINE:
            lines.append(_overwritten(self._begun[:_LONGEST_LINE]))
            self._begun = self._begun[_LONGEST_LINE:]
        return lines

    def flush(self) -> list[str]:
        """Return the unfinished line at the end of the log."""
        text = _overwritten((self._begun + self._decoder.decode(b"", final=True)).rstrip("\r"))
        self._begun = ""
        return [text] if text else []

    def _redrawn(self, lines: list[str]) -> str:
        """Store the newest state of a repeatedly redrawn line. Return the unfinished part."""
        shown, _, newest = self._begun.rpartition("\r")
        drawn = _overwritten(shown.rstrip("\r"))
        now = self._clock()
        if drawn and now - self._redrawn_at >= _BETWEEN_REDRAWS_S:
            self._redrawn_at = now
            lines.append(drawn)
        return f"\r{newest}" if newest else f"{drawn}\r"


def _overwritten(line: str) -> str:
    """Return what stays of a line that was drawn several times: the last drawing."""
    return line.rpartition("\r")[2]


def _visible_text(text: str) -> str:
    return visible(text).replace("\\x09", "\t") if _SPECIAL.search(text) else text
