"""Reports from the Hub and the servers: a route is open, a server is active."""

from dataclasses import dataclass

from django.db import transaction

from portal.accounts import audit
from portal.accounts.tokens import hash_of
from portal.core import clock
from portal.core.errors import InvalidInput, NotFound
from portal.core.text import clean_slug
from portal.notebooks.culling import note_activity
from portal.notebooks.hub_tokens import new_hub_secret
from portal.notebooks.models import Hub, Server
from portal.notebooks.server_transitions import announce, move_server
from portal.notebooks.server_warnings import is_idle_warning
from portal.notebooks.urls import start_of
from portal.workloads.lifecycle import ACTIVE
from portal.workloads.models import Workload
from portal.workloads.services.relay import is_relay_address, relay_target
from slipway.schemas.notebook_servers import LabInstructions, LabReport, NotebookState


@dataclass(frozen=True)
class AdmittedHub:
    """A Hub and its token, which is not stored."""

    hub: Hub
    secret: str


def admit_hub(*, name: str) -> AdmittedHub:
    """Create a token for the Hub of that name and revoke its earlier one. Raises InvalidInput."""
    slug = clean_slug(name, field="name")
    secret = new_hub_secret()
    with transaction.atomic():
        hub, _ = Hub.objects.update_or_create(name=slug, defaults={"token_hash": hash_of(secret)})
        audit.record("hub.admit", kind="hub", target=hub, label=slug)
    return AdmittedHub(hub, secret)


def record_hub_request(*, secret: str) -> None:
    """The Hub with this token asks what there is to open."""
    Hub.objects.record_request(hash_of(secret), clock.now())


def note_trouble(*, server: Server, start: str, why: str) -> None:
    """Record that the Hub could not open the route to a start yet. For an earlier start it changes
    nothing."""
    if server.workload is None or start_of(server.workload) != start:
        return
    opening = Server.objects.filter(pk=server.pk, workload=server.workload_id)
    opening.filter(state=NotebookState.OPENING).update(door_trouble=why)


def note_routed(*, server: Server, start: str) -> None:
    """Browsers reach a start of the server. Of an earlier start it changes nothing."""
    with transaction.atomic():
        current = _locked(server)
        if current.workload is None or start_of(current.workload) != start:
            return
        move_server(
            current,
            NotebookState.READY,
            started_at=current.started_at or clock.now(),
            opening_since=None,
            door_trouble="",
            active_at=clock.now(),
            why_alive="just started",
        )


def accept_lab_report(*, server: Server, report: LabReport) -> LabInstructions:
    """Accept a server's report of its state. Returns the response to it.

    Idempotent: a report that was heard before, or of an earlier placement, changes nothing.
    Raises NotFound when its workload is no longer at work.
    """
    with transaction.atomic():
        current = _locked(server)
        workload = current.workload
        if workload is None or workload.status not in ACTIVE:
            raise NotFound
        if report.attempt == workload.epoch and _is_new(current, report):
            _apply_report(current, workload, report)
    current.refresh_from_db()
    return LabInstructions(
        stops_at=current.stops_at,
        why=current.stops_why,
        may_keep=is_idle_warning(current.stops_why),
        open_files=current.open_files,
    )


def _locked(server: Server) -> Server:
    servers = Server.objects.select_for_update(of=("self",), no_key=True).filter(pk=server.pk)
    current = servers.select_related("workload", "tier").first()
    if current is None:
        raise NotFound
    return current


def _is_new(server: Server, report: LabReport) -> bool:
    if report.attempt != server.run_attempt:
        return True
    return report.sequence > server.report_sequence


def _apply_report(server: Server, workload: Workload, report: LabReport) -> None:
    is_first = report.attempt != server.run_attempt or not server.address
    changes: dict[str, object] = {
        "run_attempt": report.attempt,
        "report_sequence": report.sequence,
        "address": _address_of(workload, report),
    }
    if not is_first and server.status == NotebookState.READY:
        changes["open_files"] = list(report.open_files)
    Server.objects.filter(pk=server.pk).update(**changes)
    if is_first:
        if server.status in (NotebookState.OPENING, NotebookState.READY):
            move_server(server, NotebookState.STARTING)
        if not move_server(
            server, NotebookState.OPENING, opening_since=clock.now(), door_trouble=""
        ):
            announce(server)
    if report.busy_kernels or report.moved:
        note_activity(server, clock.now(), report.why or "active")
    elif not is_first:
        Server.objects.filter(pk=server.pk).update(why_alive=_resting(report))


def _address_of(workload: Workload, report: LabReport) -> str:
    """Return the address at which the Hub reaches a server.

    Of one in a pool the portal knows it itself, and no server may report that of another one.
    """
    target = relay_target(workload)
    if target is not None:
        return target.address
    if is_relay_address(report.address):
        raise InvalidInput(
            f"{report.address} is not an address of this server.",
            field="address",
            next_step="Report the host and the port on which the server listens.",
        )
    return report.address


def _resting(report: LabReport) -> str:
    if report.kernels:
        return f"{report.kernels} idle kernel{'' if report.kernels == 1 else 's'}, no activity"
    return "no activity"
