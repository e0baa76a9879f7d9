"""Shells in running tasks: who may open one, what nodes learn of them, and their audit entries."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from portal.accounts import audit
from portal.accounts.models import ServiceAccount, User
from portal.accounts.request_origin import Origin, current_origin, origin_context
from portal.accounts.services.service_accounts import may_use, note_operator
from portal.compute.models import Node
from portal.core import clock
from portal.core.errors import Conflict, Forbidden, InvalidInput
from portal.workloads.kept_tasks import failed_rank
from portal.workloads.lifecycle import LeaseState
from portal.workloads.models import Lease, ShellSession, Workload
from portal.workloads.models.leases import LeaseQuerySet
from portal.workloads.ports import kind_of
from slipway.schemas.agent import TaskKey
from slipway.schemas.relay import ShellTarget

MAX_SHELLS = 8
# Longer than a shim lets a shell live that nobody follows.
UNATTENDED = timedelta(seconds=100)


def open_shell(*, workload: Workload, rank: int | None, by: User) -> ShellSession:
    """Record a shell beside a rank, by default the one that has failed, and notify its node.

    Raises Forbidden for the job of somebody else, InvalidInput, Conflict.
    """
    if rank is None:
        rank = failed_rank(workload)
    require_shell(workload=workload, rank=rank, by=by)
    if workload.submitted_by_id != by.pk:
        # Maintainers act as service accounts, and do not approve what these request from then on.
        note_operator(ServiceAccount.objects.get(user=workload.submitted_by_id), by)
    with transaction.atomic():
        leases = Lease.objects.select_for_update(of=("self",), no_key=True).select_related("node")
        lease = _running_lease(leases, workload, rank)
        if ShellSession.objects.open().filter(lease=lease).count() >= MAX_SHELLS:
            raise Conflict(
                f"{MAX_SHELLS} shells are open in this task already.",
                code="too_many_shells",
                next_step="Close one of them.",
            )
        shell = ShellSession.objects.create(lease=lease, user=by, rank=rank, seen_at=clock.now())
        _audit("workload.open_shell", shell, workload, node=lease.node.name)
        Node.objects.wake([lease.node_id])
    return shell


def require_shell(*, workload: Workload, rank: int, by: User) -> None:
    """Raise the reason why somebody cannot open a shell beside a rank now. Changes nothing.

    Raises Forbidden for the job of somebody else, InvalidInput, Conflict.
    """
    require_submitter(workload=workload, by=by, verb="opens shells in")
    ranks = workload.nodes * workload.procs
    if rank >= ranks:
        raise InvalidInput(
            f"rank: the job has {ranks} ranks: 0 to {ranks - 1}."
            if ranks > 1
            else "rank: the job has one rank: 0.",
            field="rank",
            next_step="Choose one of them.",
        )
    if not settings.SLIPWAY_HAS_RELAY:
        raise Conflict(
            "Shells cannot be opened: this installation runs no relay.",
            code="no_relay",
            next_step="Ask an administrator to set SLIPWAY_EMBEDDED_RELAY=true.",
        )
    _running_lease(Lease.objects.all(), workload, rank)


def _running_lease(leases: LeaseQuerySet, workload: Workload, rank: int) -> Lease:
    """Return the lease of the task of a rank. Raises Conflict unless it runs or is kept."""
    lease = leases.of_epoch(workload).open().filter(index=rank // workload.procs).first()
    if lease is None or lease.state != LeaseState.RUNNING:
        raise Conflict(
            f"The job is {workload.state}, and its rank {rank} does not run.",
            code="not_running",
            next_step="Open a shell while it runs. A job that is submitted with --keep-failed can "
            "be entered after its failure, too.",
        )
    return lease


def require_submitter(*, workload: Workload, by: User, verb: str) -> None:
    """Raise Forbidden unless a person may act as the submitter, whose token and files a task has.

    Maintainers of the project may act as its service accounts. `verb` is what the person does with
    the work, such as "opens shells in".
    """
    if workload.submitted_by_id == by.pk:
        return
    account = ServiceAccount.objects.filter(user=workload.submitted_by_id).first()
    if account is not None and may_use(account, by):
        return
    raise Forbidden(
        f"Only {workload.submitted_by.display_name} {verb} this {kind_of(workload.kind).noun}: "
        "code in it acts for its submitter.",
        code="not_the_submitter",
        next_step="Clone it, and do this in your own.",
    )


def end_shell(*, shell: ShellSession, reason: str, exit_code: int | None = None) -> bool:
    """Record the end of a shell once. Returns whether it was open."""
    now = clock.now()
    with transaction.atomic():
        ended = ShellSession.objects.open().filter(pk=shell.pk)
        if not ended.update(ended_at=now, reason=reason[:32], exit_code=exit_code):
            return False
        lease = Lease.objects.select_related("workload__project", "node").get(pk=shell.lease_id)
        shell.exit_code = exit_code
        origin = current_origin()
        with origin_context(origin if origin.user else Origin(user=shell.user)):
            _audit(
                "workload.close_shell",
                shell,
                lease.workload,
                reason=reason,
                exit_code=exit_code,
                seconds=round((now - shell.created_at).total_seconds()),
            )
        Node.objects.wake([lease.node_id])
    return True


def note_followed(shell: ShellSession) -> bool:
    """Note that somebody follows a shell. Returns False once it has ended."""
    return bool(ShellSession.objects.open().filter(pk=shell.pk).update(seen_at=clock.now()))


def has_task_ended(shell: ShellSession) -> bool:
    """Return whether the task of a shell has ended, and the shell with it."""
    return not Lease.objects.open().filter(pk=shell.lease_id).exists()


def end_unattended() -> None:
    """End shells whose task has ended, or which nobody follows any more."""
    shells = ShellSession.objects.open().select_related("lease", "user")
    for shell in shells.filter(lease__ended_at__isnull=False):
        end_shell(shell=shell, reason="task_ended")
    for shell in shells.filter(seen_at__lt=clock.now() - UNATTENDED):
        end_shell(shell=shell, reason="unattended")


def shell_tasks(node: Node) -> list[TaskKey]:
    """Return the tasks of a node with open shells."""
    return task_keys(ShellSession.objects.at(node))


def task_keys(sessions: QuerySet[Any]) -> list[TaskKey]:
    """Return the tasks of sessions with a `lease`, each once."""
    rows = Lease.objects.filter(pk__in=sessions.order_by().values("lease")).order_by("pk")
    return [TaskKey(task_id=lease.task_id, epoch=lease.epoch) for lease in rows]


def shell_targets(node: Node) -> list[ShellTarget]:
    """Return what a node may serve through the relay for its open shells."""
    shells = ShellSession.objects.at(node).select_related("lease").order_by("pk")
    return list(dict.fromkeys(_target(shell.lease) for shell in shells))


def door_of(shell: ShellSession) -> Path:
    """Return the socket of the relay that leads to the task of a shell."""
    folder: Path = settings.SLIPWAY_RELAY_FOLDER()
    return folder / _target(shell.lease).door


def _target(lease: Lease) -> ShellTarget:
    return ShellTarget(workload_id=lease.workload_id, epoch=lease.epoch, task_id=lease.task_id)


def _audit(verb: str, shell: ShellSession, workload: Workload, **after: object) -> None:
    audit.record(
        verb,
        kind="workload",
        target=workload,
        label=workload.name,
        project=workload.project,
        after={"shell": shell.pk, "rank": shell.rank, **after},
    )
