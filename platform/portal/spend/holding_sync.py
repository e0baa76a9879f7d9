"""Synchronisation of holdings with whole nodes and the stored bytes that apps report."""

from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction

from portal.accounts.models import Project
from portal.compute.models import Node
from portal.core import clock
from portal.spend.models import Holding
from portal.spend.models.ledger import KIND_CAPACITY, KIND_STORAGE
from portal.storage.usage import stored_bytes
from portal.workloads.costs import unix_ms

_NODE = "node"
_AMOUNTS = ("cpu_millis", "memory_bytes", "gpus", "stored_bytes")


@dataclass(frozen=True)
class CurrentHolding:
    """Current amounts of a holding. `since_ms` is the start of one that was not seen starting."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    stored_bytes: int = 0
    team: str = ""
    since_ms: int | None = None


Key = tuple[str, str, str, str]


def sync_holdings(timestamp: datetime | None = None) -> int:
    """Begin, change and end holdings. Return the number changed. Safe to run concurrently."""
    now_ms = unix_ms(timestamp or clock.now())
    there = _nodes() | _stored()
    known: dict[Key, Holding] = {
        (holding.kind, holding.what, holding.project, holding.node): holding
        for holding in Holding.objects.open()
    }
    changed = 0
    for key in sorted(there.keys() | known.keys()):
        changed += _sync(key, there.get(key), known.get(key), now_ms)
    return changed


def _sync(
    key: Key, current_holding: CurrentHolding | None, known: Holding | None, now_ms: int
) -> bool:
    if current_holding is not None and known is not None and _is_unchanged(current_holding, known):
        return False
    try:
        with transaction.atomic():
            if known is not None:
                end_ms = max(now_ms, known.begin_ms)
                if not Holding.objects.open().filter(pk=known.pk).update(end_ms=end_ms):
                    return False
                now_ms = end_ms
            if current_holding is not None:
                begin_ms = (
                    now_ms
                    if known or current_holding.since_ms is None
                    else current_holding.since_ms
                )
                _open_holding(key, current_holding, min(begin_ms, now_ms))
    except IntegrityError:
        return False  # another process was faster
    return True


def _is_unchanged(current_holding: CurrentHolding, known: Holding) -> bool:
    return all(
        getattr(current_holding, name) == getattr(known, name) for name in (*_AMOUNTS, "team")
    )


def _open_holding(key: Key, current_holding: CurrentHolding, begin_ms: int) -> None:
    kind, what, project, node = key
    Holding.objects.create(
        kind=kind,
        what=what,
        project=project,
        node=node,
        team=current_holding.team,
        begin_ms=begin_ms,
        billed_to_ms=begin_ms,
        **{name: getattr(current_holding, name) for name in _AMOUNTS},
    )


def _nodes() -> dict[Key, CurrentHolding]:
    return {
        (KIND_CAPACITY, _NODE, "", node.pk): CurrentHolding(
            cpu_millis=node.cpu_millis,
            memory_bytes=node.memory_bytes,
            gpus=node.gpus,
            since_ms=unix_ms(node.created_at),
        )
        for node in Node.objects.lasting()
    }


def _stored() -> dict[Key, CurrentHolding]:
    teams = dict(Project.objects.values_list("pk", "team_id"))
    return {
        (KIND_STORAGE, what, project, ""): CurrentHolding(
            stored_bytes=size, team=teams.get(project) or ""
        )
        for what, sizes in stored_bytes().items()
        for project, size in sizes.items()
        if size > 0
    }
