"""Orders of machines of pools from their engines.

An order is committed as an `Allocation` before its engine is asked: a crash between the two asks
again with the same name, and engines answer a name that they know with what they have.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog
from django.db import transaction

from portal.compute.engines import (
    AllocationDelayed,
    AllocationOrder,
    Answer,
    EndCause,
    Engine,
    EngineFull,
    EngineRefused,
    OrderedImage,
    WithdrawingEngine,
    engine_label,
    submit_many,
)
from portal.compute.models import Pool
from portal.compute.resources import Amount
from portal.compute.services.node_registration import create_allocation_tokens
from portal.compute.services.pool_accounts import account_name
from portal.compute.services.pool_helpers import is_helper_running, uses_helpers
from portal.core import clock
from portal.core.errors import InvalidInput
from portal.workloads.allocation_ends import conclude, end_workload, is_wanted
from portal.workloads.lifecycle import OPEN_ALLOCATIONS, AllocationState, allocation_sources
from portal.workloads.models import Allocation, Workload
from portal.workloads.pool_images import ImageFailed, ImageWait, image_for
from portal.workloads.queue import Queue
from portal.workloads.transitions import add_event, locked
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode, WorkloadState

log = structlog.get_logger(__name__)
# The time that the engine leaves between its signal and the kill.
GRACE: Final = timedelta(seconds=30)
# An agent uses its token within seconds of its start, but it may wait for that for days.
_TOKENS_LAST: Final = timedelta(days=30)
# Orders that a helper of one person may hold without an answer.
_UNANSWERED: Final = 2


def commit_orders(pool: Pool) -> list[Allocation]:
    """Commit orders for what waits: by fair share, within quotas, as much as the pool takes."""
    if not pool.is_open or pool.removed_at is not None:
        return []
    room = pool.most_requests - Allocation.objects.open().filter(pool=pool).count()
    if room <= 0:
        return []
    # All are chosen first, because what is ordered leaves the queue that is read.
    allocations = [_commit(pool, workload_id) for workload_id in _next_in_queue(pool, room)]
    return [allocation for allocation in allocations if allocation is not None]


def _next_in_queue(pool: Pool, room: int) -> list[str]:
    """Return the workloads to order next, at most `room`."""
    queue = Queue(clock.now().timestamp(), batch=room, pool_id=pool.pk)
    queue.count_ordered(_ordered_totals())
    has_helpers = uses_helpers(pool)
    chosen: list[str] = []
    people: Counter[str] = Counter()
    while len(chosen) < room:
        line = queue.next_queue()
        first = line.first() if line else None
        if line is None or first is None:
            break
        if line.blocks(first.total):
            line.skip_first()
            continue
        if has_helpers:
            person = _person_of(first.workload_id)
            if _waits_for_helper(pool, person, chosen=people[person]):
                line.skip_first()
                continue
            people[person] += 1
        line.pop_first(first.total)
        queue.reprioritize(line)
        chosen.append(first.workload_id)
    return chosen


def _person_of(workload_id: str) -> str:
    people = Workload.objects.filter(pk=workload_id).values_list("submitted_by_id", flat=True)
    return people.first() or ""


def _waits_for_helper(pool: Pool, person: str, *, chosen: int) -> bool:
    """Return True if one more order, beside those chosen, would wait for the helper of a person.

    It would take a place of those whose helpers run and answer.
    """
    if not person or not is_helper_running(pool, person):
        return True
    unanswered = Allocation.objects.open().filter(
        pool=pool, handle="", workload__submitted_by=person
    )
    return unanswered.count() + chosen >= _UNANSWERED


def _ordered_totals() -> list[tuple[str, Amount]]:
    """Return project and resources of everything that engines were asked for and is not placed."""
    waiting = Workload.objects.queued().filter(allocations__state__in=OPEN_ALLOCATIONS)
    columns = ("project_id", "nodes", "cpu_millis", "memory_bytes", "gpus")
    return [
        (project_id, Amount(*amount).times(nodes))
        for project_id, nodes, *amount in waiting.values_list(*columns)
    ]


def _commit(pool: Pool, workload_id: str) -> Allocation | None:
    """Create the row of an allocation, unless the workload was stopped or ordered meanwhile."""
    with transaction.atomic():
        workload = locked(workload_id)
        if workload is None or workload.status != WorkloadState.QUEUED:
            return None
        if Allocation.objects.open().filter(workload=workload).exists():
            return None
        try:
            account = account_name(pool=pool, user=workload.submitted_by)
        except InvalidInput as error:  # unlinked since it was submitted
            end_workload(workload, WorkloadState.FAILED, ReasonCode.START_FAILED, error.message)
            return None
        return Allocation.objects.create(
            workload=workload, pool=pool, epoch=workload.epoch + 1, account=account
        )


def submit_orders(engine: Engine, allocations: Sequence[Allocation]) -> None:
    """Ask the engine for allocations, those of a batch at once. Raises EngineAway."""
    groups: dict[str, list[Allocation]] = {}
    images: dict[str, OrderedImage | None] = {}
    for allocation in allocations:
        image = _image_of(allocation)
        if isinstance(image, ImageWait) or _is_withdrawn(engine, allocation):
            continue
        images[allocation.name] = image
        groups.setdefault(allocation.batch or allocation.name, []).append(allocation)
    full: dict[str, EngineFull] = {}
    for name, group in groups.items():
        account = group[0].account
        if account in full:
            answers: Mapping[str, Answer] = {each.name: full[account] for each in group}
        else:
            orders = [_order_of(each, images[each.name]) for each in group]
            answers = submit_many(engine, name, orders)
        for allocation in group:
            answer = answers.get(allocation.name)
            if isinstance(answer, EngineFull):
                full[account] = answer
            if answer is not None:
                _note_answer(allocation, answer)


def _image_of(allocation: Allocation) -> OrderedImage | ImageWait | None:
    """Return the image that an allocation runs in. Note why it waits for one, or has none."""
    try:
        image = image_for(allocation)
    except ImageFailed as failure:
        conclude(allocation, EndCause.FAILED, str(failure), failure=ReasonCode.ENVIRONMENT_FAILED)
        return ImageWait(str(failure))
    if isinstance(image, ImageWait):
        # The engine has not been asked yet.
        if is_wanted(allocation):
            note_detail(allocation, image.reason)
        else:
            conclude(allocation, EndCause.CANCELLED, "")
    return image


def _is_withdrawn(engine: Engine, allocation: Allocation) -> bool:
    """Withdraw an order that is not needed any more. Return True if it never reached the engine.

    One that may have reached it is submitted as well, and then stopped as every other.
    """
    if is_wanted(allocation):
        return False
    if isinstance(engine, WithdrawingEngine) and engine.withdraw(allocation.name):
        conclude(allocation, EndCause.FINISHED, "")
        return True
    log.info("an order is followed by its end", allocation=allocation.pk)
    return False


def _order_of(allocation: Allocation, image: OrderedImage | None) -> AllocationOrder:
    """Return the order for an allocation, the same one each time."""
    workload = allocation.workload
    names = [f"{allocation.name}-{index}" for index in range(workload.nodes)]
    tokens = create_allocation_tokens(
        pool=allocation.pool,
        reserved_for=allocation.reserved_for,
        names=names,
        valid_for=_TOKENS_LAST,
    )
    lifetime = workload.max_lifetime_s
    return AllocationOrder(
        name=allocation.name,
        label=f"slipway {workload.project.slug} {workload.name}",
        tasks=workload.nodes,
        amount=workload.amount,
        gpu_model=workload.gpu_model,
        # The start of the agent and of the environment come on top of the lifetime.
        time_limit=timedelta(seconds=lifetime) + timedelta(minutes=10) if lifetime else None,
        grace=GRACE,
        join_tokens=tuple(tokens),
        account=allocation.account,
        project=workload.project.slug,
        image=image,
        person=workload.submitted_by_id,
        place=allocation.place,
    )


def _note_answer(allocation: Allocation, answer: Answer) -> None:
    """Store the engine's answer to an order."""
    engine = engine_label(allocation.pool.engine)
    if isinstance(answer, EngineRefused):
        text = f"{engine} refused it: {answer}"
        conclude(allocation, EndCause.FAILED, text, failure=ReasonCode.START_FAILED)
        return
    if isinstance(answer, EngineFull):
        note_detail(allocation, f"{engine} takes no more jobs now: {answer}")
        return
    if isinstance(answer, AllocationDelayed):
        note_detail(allocation, str(answer))
        return
    rows = Allocation.objects.filter(
        pk=allocation.pk, state__in=allocation_sources(AllocationState.SUBMITTED)
    )
    # The detail was why it could not be submitted yet.
    if rows.update(state=AllocationState.SUBMITTED, handle=answer, detail=""):
        allocation.state, allocation.handle = AllocationState.SUBMITTED, answer
        add_event(
            allocation.workload,
            kind="ordered",
            message=f"Submitted to pool {allocation.pool.name} "
            f"({engine} {allocation.shown_handle}).",
        )


def note_detail(allocation: Allocation, detail: str) -> None:
    """Store why an allocation waits."""
    detail = shorten(detail, 500)
    if detail != allocation.detail:
        Allocation.objects.open().filter(pk=allocation.pk).update(detail=detail)
