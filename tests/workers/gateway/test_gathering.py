"""Who comes without a pause goes together; who does not come is not waited for."""

import asyncio

from workers.gateway.batcher import LONGEST_S, FrameBatcher
from workers.gateway.request import Prediction, RequestFormat

_LOOK_S = LONGEST_S / 100


def _request(since: float) -> Prediction:
    return Prediction(None, b"", RequestFormat(), b"{}", since)


def _sizes_of(moments: list[float], *, pause_after: int = -1) -> list[int]:
    """Return how many went together of those that came at these moments, one in each turn.

    After that many the loop turns thrice and nobody comes.
    """
    sizes: list[int] = []

    async def come() -> None:
        gathering = FrameBatcher(lambda batch: sizes.append(len(batch)))
        for number, since in enumerate(moments):
            for _ in range(3 if number == pause_after else 0):
                await asyncio.sleep(0)
            gathering.add(_request(since))
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        assert gathering.last == sizes[-1]

    asyncio.run(come())
    return sizes


def test_who_comes_in_each_turn_of_the_loop_goes_with_those_before() -> None:
    assert _sizes_of([at * _LOOK_S for at in range(20)]) == [20]


def test_nobody_is_waited_for_once_a_turn_brought_nobody() -> None:
    assert _sizes_of([0.0]) == [1]
    assert _sizes_of([at * _LOOK_S for at in range(5)], pause_after=3) == [3, 2]


def test_the_first_waits_no_longer_than_a_moment_although_more_come() -> None:
    sizes = _sizes_of([at * LONGEST_S / 4 for at in range(10)])
    assert sum(sizes) == 10
    assert max(sizes) == 5, "the fifth came as much later"
