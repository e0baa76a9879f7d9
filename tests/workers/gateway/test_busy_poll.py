"""The loop stays awake for who asks again at once, and for nobody else."""

import asyncio
import time

from workers.gateway.busy_poll import LIMIT_S, BusyPoll


async def _turns_until_asleep(poll: BusyPoll) -> int:
    turns = 0
    while poll.is_awake:
        await asyncio.sleep(0)
        turns += 1
    return turns


def _kept_awake() -> BusyPoll:
    """Answer somebody who asked at once; it has to be in a loop."""
    poll = BusyPoll(lambda: True)
    poll.requests_finished()
    poll.request_started(poll.answered_at + LIMIT_S / 2)
    poll.requests_finished()
    return poll


def test_who_asked_at_once_may_do_so_again_and_finds_the_loop_awake() -> None:
    async def ask() -> None:
        poll = _kept_awake()
        assert await _turns_until_asleep(poll) > 0
        assert time.monotonic() - poll.answered_at >= LIMIT_S

    asyncio.run(ask())


def test_nobody_is_waited_for_who_has_not_come_soon_before() -> None:
    async def ask() -> None:
        poll = BusyPoll(lambda: True)
        poll.request_started(time.monotonic())
        poll.requests_finished()
        assert not poll.is_awake

    asyncio.run(ask())


def test_it_stays_awake_only_while_nobody_else_needs_the_processor() -> None:
    async def ask() -> None:
        poll = BusyPoll(lambda: False)
        poll.requests_finished()
        poll.request_started(poll.answered_at)
        poll.requests_finished()
        assert not poll.is_awake

    asyncio.run(ask())


def test_it_sleeps_between_predictions_while_the_shipper_works() -> None:
    async def ask() -> None:
        poll = _kept_awake()
        poll.is_shipping = True
        assert await _turns_until_asleep(poll) <= 1
        poll.request_started(poll.answered_at)
        poll.requests_finished()
        assert not poll.is_awake
        poll.is_shipping = False
        poll.request_started(poll.answered_at)
        poll.requests_finished()
        assert poll.is_awake

    asyncio.run(ask())


def test_the_next_request_ends_it() -> None:
    async def ask() -> None:
        poll = _kept_awake()
        assert poll.is_awake
        poll.request_started(poll.answered_at)
        assert await _turns_until_asleep(poll) <= 2

    asyncio.run(ask())


def test_who_takes_longer_lets_the_loop_sleep() -> None:
    async def ask() -> None:
        poll = _kept_awake()
        await _turns_until_asleep(poll)
        poll.request_started(poll.answered_at + LIMIT_S * 1.01)
        poll.requests_finished()
        assert not poll.is_awake

    asyncio.run(ask())
