"""Audit events of relevant changes through MLflow."""

from dataclasses import dataclass
from typing import Any

from portal.accounts import audit
from portal.accounts.models import Project
from portal.accounts.request_origin import Origin, origin_context
from portal.api.mlflow.auth import Caller
from slipway.schemas.truncation import shorten_name

_NAMES = ("name", "new_name", "version", "alias", "stage", "experiment_id", "run_id")
_MOST = 200


@dataclass(frozen=True)
class _Target:
    """The changed object, by its id in MLflow."""

    pk: str


def record(
    visitor: Caller, verb: str, content: dict[str, Any], query: list[tuple[str, str]]
) -> None:
    """Record a change of a caller. Called after MLflow has confirmed it."""
    given = {**dict(query), **content}
    short_names_by_name = {
        name: shorten_name(str(given[name]), _MOST) for name in _NAMES if given.get(name)
    }
    target = _Target(
        short_names_by_name.get("name")
        or short_names_by_name.get("experiment_id")
        or short_names_by_name.get("run_id", "")
    )
    principal = visitor.principal
    with origin_context(Origin(user=principal.user, token=principal.token)):
        audit.record(
            verb,
            kind=verb.partition(".")[0],
            target=target,
            label=target.pk,
            project=Project.objects.get(pk=visitor.project_id),
            after=short_names_by_name,
        )
