"""Dashboards of clusters in running tasks: their sessions, and what nodes learn of them.

A person opens one with a ticket, once, at a host name of its own. From then on the key that the
browser got is checked again and again, with all that let the person open it.
"""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from hmac import compare_digest
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import ApiToken, ServiceAccount, User
from portal.accounts.models.tenancy import role_in
from portal.accounts.principal import Principal
from portal.accounts.request_origin import Origin, current_origin, origin_context
from portal.accounts.services.service_accounts import note_operator
from portal.accounts.tokens import hash_of
from portal.compute.models import Node
from portal.core import clock
from portal.core.errors import Conflict, Forbidden
from portal.workloads.lifecycle import LeaseState
from portal.workloads.models import DashboardSession, Lease, Workload
from portal.workloads.services.shells import require_submitter, task_keys
from portal.workloads.specs import RunSpec
from slipway.schemas.accounts import Role
from slipway.schemas.agent import TaskKey
from slipway.schemas.backends import BACKENDS, DEFAULT_BACKEND
from slipway.schemas.frameworks import FRAMEWORKS, has_dashboard
from slipway.schemas.relay import DashboardTarget

OPEN_PATH = "/.slipway/open"
# More of one person in one task: the oldest ends.
MAX_OPEN = 8
TICKET_FOR = timedelta(seconds=60)
UNATTENDED = timedelta(minutes=15)
OLDEST = timedelta(hours=12)
_NOTE_EVERY = timedelta(seconds=20)


@dataclass(frozen=True)
class OpenedDashboard:
    """A new session, and the address that opens it once until `session.ticket_until`."""

    session: DashboardSession
    url: str


def open_dashboard(*, workload: Workload, by: Principal, session_key: str = "") -> OpenedDashboard:
    """Let a person open the dashboard of a cluster, and notify its node.

    Raises Forbidden for the work of somebody else, Conflict where there is none to open.
    """
    user = by.user
    require_dashboard(workload=workload, by=user)
    if workload.submitted_by_id != user.pk:
        note_operator(ServiceAccount.objects.get(user=workload.submitted_by_id), user)
    ticket, now = secrets.token_urlsafe(32), clock.now()
    with transaction.atomic():
        leases = Lease.objects.select_for_update(of=("self",), no_key=True).select_related("node")
        lease = leases.of_epoch(workload).open().filter(index=0).first()
        if lease is None:
            raise _not_running(workload)
        earlier = DashboardSession.objects.open().filter(lease=lease, user=user).order_by("-pk")
        for session in earlier[MAX_OPEN - 1 :]:
            end_dashboard(session=session, reason="replaced")
        session = DashboardSession.objects.create(
            lease=lease,
            user=user,
            label=secrets.token_hex(16),
            ticket_hash=hash_of(ticket),
            ticket_until=now + TICKET_FOR,
            token=by.token,
            session_key="" if by.token else session_key,
            proof="" if by.token else hash_of(user.get_session_auth_hash()),
            seen_at=now,
        )
        _audit("workload.open_dashboard", session, workload, node=lease.node.name)
        Node.objects.wake([lease.node_id])
    parts = urlsplit(settings.SLIPWAY_DASHBOARDS_URL)
    origin = f"{parts.scheme}://{session.label}.{parts.netloc}"
    return OpenedDashboard(session, f"{origin}{OPEN_PATH}?ticket={ticket}")


def require_dashboard(*, workload: Workload, by: User) -> None:
    """Raise the reason why somebody cannot open the dashboard of a cluster now.

    Raises Forbidden for the work of somebody else, Conflict.
    """
    require_submitter(workload=workload, by=by, verb="opens the dashboard of")
    spec = RunSpec.model_validate(workload.spec)
    if not has_dashboard(spec.framework):
        names = [info.name for info in FRAMEWORKS.values() if info.dashboard]
        raise Conflict(
            "There is no dashboard: this work forms no cluster that has one.",
            code="no_dashboard",
            next_step=f"Submit it with --framework {' or '.join(names)}.",
        )
    if spec.backend != DEFAULT_BACKEND:
        raise Conflict(
            f"Dashboards of the back end {BACKENDS[spec.backend].label} cannot be opened.",
            code="no_dashboard",
            next_step=f"Submit the job with the back end {BACKENDS[DEFAULT_BACKEND].label}.",
        )
    if not settings.SLIPWAY_HAS_RELAY:
        raise Conflict(
            "Dashboards cannot be opened: this installation runs no relay.",
            code="no_relay",
            next_step="Ask an administrator to set SLIPWAY_EMBEDDED_RELAY=true.",
        )
    if not settings.SLIPWAY_DASHBOARDS_URL:
        raise Conflict(
            "Dashboards have no address in this installation.",
            code="no_dashboards",
            next_step="Ask an administrator to set SLIPWAY_DASHBOARDS_PUBLIC_URL.",
        )
    lease = Lease.objects.of_epoch(workload).open().filter(index=0).first()
    if lease is None or lease.state != LeaseState.RUNNING:
        raise _not_running(workload)


def _not_running(workload: Workload) -> Conflict:
    return Conflict(
        f"The work is {workload.state}, and its cluster does not run.",
        code="not_running",
        next_step="Open the dashboard while it runs.",
    )


def redeem_ticket(*, label: str, ticket: str) -> str | None:
    """Exchange a ticket for the key of the browser, once. Returns None for any other ticket."""
    key = secrets.token_urlsafe(32)
    now = clock.now()
    redeemed = (
        DashboardSession.objects.open()
        .filter(label=label, ticket_hash=hash_of(ticket), ticket_until__gt=now, key_hash="")
        .update(key_hash=hash_of(key), seen_at=now)
    )
    return key if redeemed else None


def authorized_door(*, label: str, keys: list[str]) -> Path | None:
    """Return the socket of the relay that a browser with one of these keys is led to.

    Returns None if there is no such session, or its person may not open the dashboard any more.
    """
    sessions = DashboardSession.objects.open().exclude(key_hash="").filter(label=label)
    session = sessions.select_related("lease__workload__project", "user", "token").first()
    if session is None or not any(compare_digest(session.key_hash, hash_of(key)) for key in keys):
        return None
    now = clock.now()
    if not _may_still(session):
        end_dashboard(session=session, reason="forbidden")
        return None
    if session.seen_at < now - _NOTE_EVERY:
        DashboardSession.objects.open().filter(pk=session.pk).update(seen_at=now)
    folder: Path = settings.SLIPWAY_RELAY_FOLDER()
    return folder / _target(session.lease).door


def _may_still(session: DashboardSession) -> bool:
    """Return whether the person still may, with the credential that opened the session."""
    user, workload = session.user, session.lease.workload
    if not user.is_active or session.lease.ended_at is not None:
        return False
    if session.created_at < clock.now() - OLDEST:
        return False
    if session.token_id:
        if not ApiToken.objects.usable().filter(pk=session.token_id).exists():
            return False
    else:
        browser = Session.objects.filter(
            session_key=session.session_key, expire_date__gt=clock.now()
        )
        proof = hash_of(user.get_session_auth_hash())
        if not browser.exists() or not compare_digest(session.proof, proof):
            return False
    role = role_in(user, workload.project)
    if role is None or not role.at_least(Role.CONTRIBUTOR):
        return False
    try:
        require_submitter(workload=workload, by=user, verb="opens the dashboard of")
    except Forbidden:
        return False
    return True


def end_dashboard(*, session: DashboardSession, reason: str) -> bool:
    """Record the end of a session once. Returns whether it was open."""
    now = clock.now()
    with transaction.atomic():
        if not (
            DashboardSession.objects.open()
            .filter(pk=session.pk)
            .update(ended_at=now, reason=reason[:32])
        ):
            return False
        lease = Lease.objects.select_related("workload__project", "node").get(pk=session.lease_id)
        origin = current_origin()
        with origin_context(origin if origin.user else Origin(user=session.user)):
            seconds = round((now - session.created_at).total_seconds())
            details = {"reason": reason, "seconds": seconds}
            _audit("workload.close_dashboard", session, lease.workload, **details)
        Node.objects.wake([lease.node_id])
    return True


def end_unattended_dashboards() -> None:
    """End sessions that nobody uses, that are too old, or whose task has ended."""
    now = clock.now()
    sessions = DashboardSession.objects.open().select_related("lease", "user")
    for session in sessions.filter(lease__ended_at__isnull=False):
        end_dashboard(session=session, reason="task_ended")
    for session in sessions.filter(key_hash="", ticket_until__lt=now):
        end_dashboard(session=session, reason="not_used")
    for session in sessions.filter(seen_at__lt=now - UNATTENDED):
        end_dashboard(session=session, reason="unattended")
    for session in sessions.filter(created_at__lt=now - OLDEST):
        end_dashboard(session=session, reason="too_old")


def dashboard_tasks(node: Node) -> list[TaskKey]:
    """Return the tasks of a node whose dashboard somebody has opened."""
    return task_keys(DashboardSession.objects.at(node))


def dashboard_targets(node: Node) -> list[DashboardTarget]:
    """Return what a node may serve through the relay for opened dashboards."""
    sessions = DashboardSession.objects.at(node).select_related("lease").order_by("pk")
    return list(dict.fromkeys(_target(session.lease) for session in sessions))


def _target(lease: Lease) -> DashboardTarget:
    return DashboardTarget(
        workload_id=lease.workload_id, epoch=lease.epoch, dashboard_of=lease.task_id
    )


def _audit(verb: str, session: DashboardSession, workload: Workload, **after: object) -> None:
    audit.record(
        verb,
        kind="workload",
        target=workload,
        label=workload.name,
        project=workload.project,
        after={"dashboard": session.pk, **after},
    )
