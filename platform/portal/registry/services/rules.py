"""The stages and gates of a project."""

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project
from portal.core.errors import Conflict, InvalidInput
from portal.registry.models import ProjectRules, VersionRecord
from portal.registry.records import rules_of
from portal.registry.services.actors import Actor, require_maintainer
from slipway.schemas.registry import RulesIn


def change_rules(*, project: Project, spec: RulesIn, by: Actor) -> ProjectRules:
    """Replace the stages and gates of a project. Audited, because promotions depend on gates.

    Raises Conflict when somebody changed them since `spec.revision` was read, InvalidInput when a
    removed stage still has versions.
    """
    require_maintainer(project, by, to="change stages and gates")
    gates = [target.model_dump(mode="json") for target in spec.gates]
    with transaction.atomic():
        ProjectRules.objects.get_or_create(project=project)
        rows = ProjectRules.objects.filter(project=project, revision=spec.revision)
        before = rules_of(project)
        # The guarded UPDATE takes the lock, so later checks stay valid.
        if not rows.update(stages=spec.stages, gates=gates, revision=spec.revision + 1):
            raise Conflict(
                "Somebody else has changed the stages or gates of this project.",
                code="rules_changed",
                next_step="Reload them, and make your change again.",
            )
        _refuse_stranded(project, before, spec.stages)
        after = rules_of(project)
        audit.record(
            "registry.rules",
            kind="registry_rules",
            target=after,
            label=project.name,
            project=project,
            before={"stages": before.stages, "gates": before.gates},
            after={"stages": after.stages, "gates": after.gates},
        )
    return after


def _refuse_stranded(project: Project, before: ProjectRules, stages: list[str]) -> None:
    gone = set(before.stages) - set(stages)
    records = VersionRecord.objects.filter(line__project=project, stage__in=gone)
    record = records.select_related("line").first()
    if record is not None:
        raise InvalidInput(
            f"The stage {record.stage} still has version {record.number} of {record.line.name}.",
            code="stage_in_use",
            field="stages",
            next_step="Move its versions to another stage first.",
        )
