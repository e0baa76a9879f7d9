"""What a follower has been sent so far, as the id of an event: short, and not to be trusted."""

from dataclasses import dataclass, field
from typing import Self

Place = tuple[int, int]  # attempt, rank
_LONGEST = 32 * 1024
_MOST_DIGITS = 16


@dataclass
class Bookmark:
    """Everything up to here was sent.

    `places` holds how many bytes of each log, `done` up to which attempt every log was sent whole
    (those have no place any more), `sample` the key of the last sample.
    """

    done: int = 0
    sample: int = 0
    places: dict[Place, int] = field(default_factory=dict)

    def offset(self, place: Place) -> int:
        """Return where to read on in a log."""
        return self.places.get(place, 0)

    def finish(self, attempt: int) -> None:
        """Note that every log up to this attempt was sent whole."""
        self.done = attempt
        self.places = {place: at for place, at in self.places.items() if place[0] > attempt}

    def __str__(self) -> str:
        parts = [f"{self.done:x}", f"{self.sample:x}"]
        parts += [f"{attempt:x}-{rank:x}-{at:x}" for (attempt, rank), at in self.places.items()]
        return ".".join(parts)

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the bookmark of an id; one that is not ours stands for the beginning."""
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
