"""The contract of every engine.

Its agents find no portal here, and try to join until they are asked to end.
"""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from portal.compute.engines import (
    AllocationOrder,
    AllocationPhase,
    AllocationReport,
    Answer,
    EndCause,
    Engine,
    EngineRefused,
    submit_many,
)
from portal.compute.resources import Amount
from tests.processes import wait_for

WITHIN_S = 60.0


def order_of(tasks: int = 1, *, cpu_millis: int = 500) -> AllocationOrder:
    """Return an order with a new name."""
    return AllocationOrder(
        name=f"sw-{secrets.token_hex(8)}",
        label="slipway vision train; rm -rf ~ 'é",
        tasks=tasks,
        amount=Amount(cpu_millis, 256 * 2**20),
        gpu_model="",
        time_limit=timedelta(minutes=5),
        grace=timedelta(seconds=5),
        join_tokens=("slj_x",) * tasks,
    )


def batch_of(count: int, *, cpu_millis: int = 500) -> tuple[str, list[AllocationOrder]]:
    """Return the name of a batch, and orders with new names for it."""
    orders = [order_of(cpu_millis=cpu_millis) for _ in range(count)]
    placed = [replace(order, place=place) for place, order in enumerate(orders)]
    return f"{orders[0].name}-many", placed


def handles_in(answers: Mapping[str, Answer]) -> dict[str, str]:
    """Return the handles of a batch that was taken as a whole."""
    assert all(isinstance(answer, str) for answer in answers.values()), answers
    return {name: str(answer) for name, answer in answers.items()}


def look_at(engine: Engine, handle: str) -> AllocationReport:
    """Return the report on one allocation. One that the engine does not know has vanished."""
    vanished = AllocationReport(AllocationPhase.ENDED, cause=EndCause.VANISHED)
    return engine.look([handle]).get(handle, vanished)


def wait_for_phase(engine: Engine, handle: str, phase: AllocationPhase) -> AllocationReport:
    """Wait until an allocation has come so far, and return the report."""
    wait_for(lambda: look_at(engine, handle).phase is phase, f"phase {phase}", within_s=WITHIN_S)
    return look_at(engine, handle)


class EngineContract:
    """Tests of an engine with room for two tasks of half a CPU each."""

    def test_an_order_that_comes_twice_is_one_allocation(self, engine: Engine) -> None:
        order = order_of()
        handle = engine.submit(order)
        assert engine.submit(order) == handle
        wait_for_phase(engine, handle, AllocationPhase.GRANTED)
        assert engine.submit(order) == handle
        engine.stop(handle)

    def test_a_stopped_allocation_was_cancelled_and_may_be_stopped_again(
        self, engine: Engine
    ) -> None:
        handle = engine.submit(order_of(2))
        wait_for_phase(engine, handle, AllocationPhase.GRANTED)
        engine.stop(handle)
        report = wait_for_phase(engine, handle, AllocationPhase.ENDED)
        assert report.cause is EndCause.CANCELLED
        engine.stop(handle)

    def test_what_does_not_fit_waits_and_says_why(self, engine: Engine) -> None:
        first = engine.submit(order_of(2))
        wait_for_phase(engine, first, AllocationPhase.GRANTED)
        second = engine.submit(order_of(2))
        wait_for(lambda: look_at(engine, second).detail, "reason", within_s=WITHIN_S)
        assert look_at(engine, second).phase is AllocationPhase.WAITING
        engine.stop(first)
        wait_for_phase(engine, second, AllocationPhase.GRANTED)
        engine.stop(second)

    def test_an_allocation_is_stopped_while_it_waits(self, engine: Engine) -> None:
        first = engine.submit(order_of(2))
        wait_for_phase(engine, first, AllocationPhase.GRANTED)
        second = engine.submit(order_of(2))
        engine.stop(second)
        assert wait_for_phase(engine, second, AllocationPhase.ENDED).cause is EndCause.CANCELLED
        engine.stop(first)

    def test_what_can_never_fit_is_refused_with_a_reason(self, engine: Engine) -> None:
        with pytest.raises(EngineRefused, match=r"\w+ \w+ \w+"):
            engine.submit(order_of(40))

    def test_a_batch_that_comes_twice_is_one_allocation_each(self, engine: Engine) -> None:
        batch, orders = batch_of(3)
        handles = handles_in(submit_many(engine, batch, orders))
        assert len(set(handles.values())) == 3
        assert handles_in(submit_many(engine, batch, orders[1:])) == {
            order.name: handles[order.name] for order in orders[1:]
        }
        first, *others = handles.values()
        # They are stopped one by one, whether they wait or run.
        wait_for_phase(engine, first, AllocationPhase.GRANTED)
        engine.stop(first)
        wait_for_phase(engine, first, AllocationPhase.ENDED)
        reports = engine.look(others)
        assert all(reports[each].phase is not AllocationPhase.ENDED for each in others)
        for other in others:
            engine.stop(other)
            wait_for_phase(engine, other, AllocationPhase.ENDED)
        assert handles_in(submit_many(engine, batch, orders[:1])) == {orders[0].name: first}

    def test_what_is_refused_of_a_batch_is_refused_each(self, engine: Engine) -> None:
        batch, orders = batch_of(2, cpu_millis=5_000_000)
        refusals = submit_many(engine, batch, orders)
        if any(isinstance(answer, str) for answer in refusals.values()):
            pytest.skip("This engine compares no CPUs.")
        assert set(refusals) == {order.name for order in orders}
        assert all(isinstance(answer, EngineRefused) for answer in refusals.values())

    def test_nothing_is_known_of_what_was_never_submitted(self, engine: Engine) -> None:
        report = look_at(engine, "99999999")
        assert (report.phase, report.cause) == (AllocationPhase.ENDED, EndCause.VANISHED)
        engine.stop("99999999")
