"""Silent workloads: they run, but write nothing, finish no step and use no processor.

Such a job may wait for input, for a lock or for a rank that is gone. It costs money all the same,
so its page, its history and a notification say so, and its author gets a mail.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.urls import reverse

from portal.accounts.mail import queue_mail
from portal.core import clock
from portal.workloads.lifecycle import LeaseState
from portal.workloads.models import Lease, UsageSample, Workload
from portal.workloads.ports import kind_of, kinds_that_report_silence
from portal.workloads.transitions import add_event, locked
from slipway.schemas.workloads import WorkloadState

NEXT_STEP = "Read its log. If it hangs, cancel it; a hang limit ends the next one by itself."
SILENT_AFTER = timedelta(minutes=15)
# Less is what an interpreter uses that waits, or torchrun that looks after its ranks.
BUSY_CPU_PERCENT = 2.0
BUSY_GPU_PERCENT = 1.0
# Activity is written to the database once in this time.
_PRECISION = timedelta(minutes=1)
_AT_ONCE = 200


def is_worth_noting(active_at: datetime | None, at: datetime) -> bool:
    """Return True if the activity at a time is newer than what the database knows."""
    return active_at is None or active_at < at - _PRECISION


def note_activity(leases: Collection[str], at: datetime) -> None:
    """Write that tasks were active. Repeating it, or an earlier time, changes nothing."""
    earlier = Q(active_at__isnull=True) | Q(active_at__lt=at)
    Lease.objects.open().filter(earlier, pk__in=leases).update(active_at=at)


def silence_text(workload: Workload) -> str:
    """Return what is known of a silent workload, empty if it is not silent."""
    if workload.silent_since is None:
        return ""
    minutes = int((clock.now() - workload.silent_since).total_seconds() // 60)
    limit_s = workload.spec.get("hang_after_s") or kind_of(workload.kind).hang_after_s
    end = (
        f"It is ended after {round(limit_s / 60)} min without output and steps."
        if limit_s
        else "It has no hang limit, so nothing ends it."
    )
    return (
        f"No output, no step and no processor use for {minutes} min: it may wait for input, a "
        f"lock or another rank. {end}"
    )


def find_silent() -> None:
    """Mark the workloads that became silent, and clear those that are active again or ended."""
    since = clock.now() - SILENT_AFTER
    _clear(since)
    for workload_id in _candidates(since).values_list("pk", flat=True)[:_AT_ONCE]:
        with transaction.atomic():
            workload = locked(workload_id)
            if workload is not None and _candidates(since).filter(pk=workload_id).exists():
                _mark(workload, since)


def _candidates(since: datetime) -> QuerySet[Workload]:
    """Return running workloads of which each task is measured, and none was active since."""
    leases = Lease.objects.open().filter(workload=OuterRef("pk"), epoch=OuterRef("epoch"))
    measured = UsageSample.objects.filter(lease=OuterRef("pk"), at__gt=since)
    active = Q(active_at__gt=since) | Q(started_at__gt=since) | ~Q(state=LeaseState.RUNNING)
    running = Workload.objects.filter(
        state=WorkloadState.RUNNING,
        started_at__lte=since,
        silent_since__isnull=True,
        kept_until__isnull=True,
        kind__in=kinds_that_report_silence(),
    )
    return running.filter(
        Exists(leases), ~Exists(leases.filter(active)), ~Exists(leases.filter(~Exists(measured)))
    ).order_by("started_at")


def _mark(workload: Workload, since: datetime) -> None:
    leases = Lease.objects.of_epoch(workload).open()
    times = [lease.active_at or lease.started_at for lease in leases]
    last = max((time for time in times if time is not None), default=since)
    unmarked = Workload.objects.filter(
        pk=workload.pk, state=WorkloadState.RUNNING, epoch=workload.epoch, silent_since=None
    )
    if not unmarked.update(silent_since=last):
        return
    workload.silent_since = last
    text = silence_text(workload)
    add_event(workload, kind="silent", message=text)
    if workload.submitted_by.is_active and workload.submitted_by.email:
        _mail(workload, text)


def _mail(workload: Workload, text: str) -> None:
    kind = kind_of(workload.kind)
    page = kind.page_of(workload.pk)
    address = reverse(page.name, args=(workload.project.slug, *page.args))
    queue_mail(
        to=workload.submitted_by.email,
        subject=f"[{workload.project.name}] The {kind.noun} {workload.name} may hang",
        body=f"{text}\n\n{NEXT_STEP}\n\n{settings.SLIPWAY_URL}{address}\n",
    )


def _clear(since: datetime) -> None:
    marked = Workload.objects.filter(silent_since__isnull=False)
    marked.exclude(state=WorkloadState.RUNNING).update(silent_since=None)
    active = Lease.objects.open().filter(
        workload=OuterRef("pk"), epoch=OuterRef("epoch"), active_at__gt=since
    )
    for workload in marked.filter(Exists(active))[:_AT_ONCE]:
        with transaction.atomic():
            still = marked.filter(pk=workload.pk, epoch=workload.epoch)
            if still.update(silent_since=None):
                add_event(workload, kind="active", message="It is active again.")
