"""Lineage of a run: model versions that it has registered, and endpoints that serve them."""

from collections.abc import Sequence
from dataclasses import dataclass

from portal.accounts.models import Project
from portal.endpoints.models import Revision
from portal.endpoints.services.queries import revisions_of_versions
from portal.web.pipelines.presenters import StepView, version_of


@dataclass(frozen=True)
class RegisteredVersion:
    """A model version that a step has registered, and the revisions of endpoints that serve it."""

    step: str
    model: str
    number: int
    revisions: Sequence[Revision]


def registered_versions(project: Project, steps: Sequence[StepView]) -> list[RegisteredVersion]:
    """Return the versions of a run, with one query at most."""
    versions = [
        (view.name, *version)
        for view in steps
        if (version := version_of(view.row.outputs.get("uri"))) is not None
    ]
    if not versions:
        return []
    revisions = revisions_of_versions(
        project_id=project.pk, versions=[(model, number) for _, model, number in versions]
    )
    return [
        RegisteredVersion(
            step,
            model,
            number,
            [it for it in revisions if (it.model, it.model_version) == (model, str(number))],
        )
        for step, model, number in versions
    ]
