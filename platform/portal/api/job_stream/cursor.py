"""Position of a client in a stream, as the id of an event. Short, and untrusted."""

from dataclasses import dataclass, field
from typing import Self

Place = tuple[int, int]  # attempt, rank
_LONGEST = 32 * 1024
_MOST_DIGITS = 16


@dataclass
class Bookmark:
    """Everything up to here was sent.

    `places` holds the number of bytes of each log, `done` up to which attempt every log was sent
    completely (those have no place any more), `sample` the key of the last sample.
    """

    done: int = 0
    sample: int = 0
    places: dict[Place, int] = field(default_factory=dict)

    def offset(self, place: Place) -> int:
        """Return the offset to continue at in a log."""
        return self.places.get(place, 0)

    def finish(self, attempt: int) -> None:
        """Record that every log up to this attempt was sent completely."""
        self.done = attempt
        self.places = {place: at for place, at in self.places.items() if place[0] > attempt}

    def __str__(self) -> str:
        parts = [f"{self.done:x}", f"{self.sample:x}"]
        parts += [f"{attempt:x}-{rank:x}-{at:x}" for (attempt, rank), at in self.places.items()]
        return ".".join(parts)

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse the bookmark of an id. Invalid ids mean the beginning."""
        if not text or len(text) > _LONGEST:
            return cls()
        try:
            done, sample, *places = text.split(".")
            made = cls(_number(done), _number(sample))
            for place in places:
                attempt, rank, at = place.split("-")
                made.places[_number(attempt), _number(rank)] = _number(at)
        except ValueError:
            return cls()
        return made


def _number(text: str) -> int:
    if not text.isascii() or not text.isalnum() or len(text) > _MOST_DIGITS:
        raise ValueError("not a number of ours")
    return min(int(text, 16), 2**53)
