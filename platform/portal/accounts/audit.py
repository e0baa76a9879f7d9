"""The audit log, written in the transaction of the change it records, or not at all."""

from typing import Any

from django.db import transaction

from portal.accounts.models import AuditEvent, Project, Team
from portal.accounts.request_origin import current_origin
from portal.core.db_patience import note_saved
from slipway.schemas.truncation import shorten_name

Facts = dict[str, Any]
# Components that change things by themselves, by the noun of the verb.
_COMPONENTS = {
    "alert": "Monitoring",
    "prediction": "Monitoring",
    "selection": "Monitoring",
    "endpoint": "Endpoint controller",
    "workload": "Scheduler",
    "schedule": "Schedules",
    "pipeline": "Pipelines",
    "node": "Scheduler",
    "notebook": "Notebook service",
    "budget": "Budgets",
    "rate": "Setup",
    "tier": "Setup",
    "gateway": "Setup",
    "hub": "Setup",
    "user": "Setup",
    "run": "Experiment tracking",
    "experiment": "Experiment tracking",
    "model": "Model registry",
    "model_version": "Model registry",
    "dataset": "Datasets",
    "file": "Storage",
    "environment": "Environments",
    "node_group": "Node groups",
}


def record(
    verb: str,
    *,
    target: Any,
    label: str,
    kind: str,
    project: Project | None = None,
    team: Team | None = None,
    before: Facts | None = None,
    after: Facts | None = None,
) -> AuditEvent:
    """Add one event. Call it inside the transaction of the change.

    `verb` reads `noun.verb` in the present (`project.create`). `before` and `after` hold only the
    changes, never a secret's value.
    """
    origin = current_origin()
    team = team or (project.team if project else None)
    transaction.on_commit(note_saved)
    return AuditEvent.objects.create(
        actor_id=origin.user.pk if origin.user else "",
        actor=origin.user.actor_name if origin.user else origin.label or _component(verb),
        token_id=origin.token.pk if origin.token else "",
        ip=origin.ip,
        request_id=origin.request_id,
        verb=verb,
        project_id=project.pk if project else "",
        project_slug=project.slug if project else "",
        team_id=team.pk if team else "",
        team_slug=team.slug if team else "",
        target_kind=kind,
        target_id=shorten_name(str(target.pk), 64),
        target_label=shorten_name(label, 254),
        before=before,
        after=after,
    )


def _component(verb: str) -> str:
    return _COMPONENTS.get(verb.partition(".")[0], "Slipway")


def difference(old: Facts, new: Facts) -> tuple[Facts, Facts]:
    """Return the parts of two states that differ."""
    changed = [key for key in new if old.get(key) != new[key]]
    return {key: old.get(key) for key in changed}, {key: new[key] for key in changed}
