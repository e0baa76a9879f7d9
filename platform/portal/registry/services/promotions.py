"""Moves versions to stages and aliases to versions, with a linear history for each model."""

from dataclasses import dataclass, replace

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.registry.catalog import ModelFacts, VersionFacts, find_model, find_version
from portal.registry.mlflow_sync import find_synced_model, sync_on_commit
from portal.registry.model_inspection import examine
from portal.registry.models import (
    ModelLine,
    Move,
    ProjectRules,
    PromotionRequest,
    VersionRecord,
)
from portal.registry.promotion_gates import GateInput, Target, gates_of, judge, needs_approval
from portal.registry.records import ensure_line, ensure_record, rules_of
from portal.registry.services.actors import Actor, require_maintainer
from portal.registry.tasks import hash_version
from slipway.schemas.registry import Gate, GateResult, RequestState, TargetKind

# More versions in one stage are left there: each is a move in the history.
_MOST_OCCUPANTS = 100


@dataclass(frozen=True)
class PromotionPlan:
    """Changes of a promotion, and its gate results. Valid until `sequence` changes.

    `occupants` are the numbers of the other versions in the stage of the target.
    """

    model: ModelFacts
    version: VersionFacts
    record: VersionRecord
    target: Target
    rules: ProjectRules
    stage_now: str
    replaces: int | None
    gates: list[GateResult]
    request: PromotionRequest | None
    sequence: int
    occupants: tuple[int, ...] = ()

    @property
    def archives(self) -> list[int]:
        """Versions that move to the last stage unless the caller says otherwise.

        One version is in use in a stage between the first and the last. An alias moves alone.
        """
        stages = self.rules.stages
        is_exclusive = (
            self.target.kind is TargetKind.STAGE
            and self.target.name not in (stages[0], stages[-1])
            and not self.is_at_target
        )
        return list(self.occupants) if is_exclusive else []

    @property
    def is_at_target(self) -> bool:
        """True if the version is at the target already."""
        if self.target.kind is TargetKind.STAGE:
            return self.stage_now == self.target.name
        return self.model.aliases.get(self.target.name) == self.version.number

    @property
    def may_promote(self) -> bool:
        """True if the version is not at the target yet and all gates passed."""
        return not self.is_at_target and all(gate.passed for gate in self.gates)

    @property
    def sentence(self) -> str:
        """Describe the change."""
        name = f"version {self.version.number} of {self.model.name}"
        if self.is_at_target:
            return f"{name[0].upper()}{name[1:]} is already at the {self.target}."
        instead = f", replacing version {self.replaces}" if self.replaces else ""
        if self.target.kind is TargetKind.STAGE:
            moved = f"Moves {name} from {self.stage_now} to {self.target.name}{instead}."
            return f"{moved} {self._archiving}" if self.archives else moved
        return f"Sets the alias {self.target.name} to {name}{instead}."

    @property
    def _archiving(self) -> str:
        """Describe what becomes of the versions that are in the stage now."""
        listed = [str(number) for number in self.archives]
        names = " and ".join(filter(None, (", ".join(listed[:-1]), listed[-1])))
        noun, verb = ("Version", "moves") if len(listed) == 1 else ("Versions", "move")
        return f"{noun} {names} {verb} to {self.rules.stages[-1]}."


def stage_of(record: VersionRecord | None, rules: ProjectRules) -> str:
    """Return the stage of a version. One that was never moved is in the first."""
    return (record.stage if record else "") or str(rules.stages[0])


def plan_promotion(*, project: Project, model: str, number: int, target: Target) -> PromotionPlan:
    """Return the changes of a promotion without making any. Call it outside a transaction.

    Raises NotFound, and InvalidInput for a stage or an alias that is not allowed.
    """
    moved = find_synced_model(project, model)
    line = ensure_line(project, moved)
    # Read before the gates are evaluated: any later change increments it.
    sequence = ModelLine.objects.values_list("sequence", flat=True).get(pk=line.pk)
    rules = rules_of(project)
    _require_target(rules, target)
    # Read unsynced moves first: MLflow's tables may lag behind them.
    untold = list(Move.objects.unsynced().filter(line=line).order_by("sequence"))
    moved = _as_moved(find_model(project.pk, model), untold)
    version = find_version(project.pk, model, number)
    record = examine(ensure_record(project, moved, version), version, later=hash_version)
    gates = gates_of(rules, target)
    champion = version_at_target(moved, line, target)
    request = _request_for(record, target)
    case = GateInput(record=record, target=target, champion=champion, request=request)
    return PromotionPlan(
        model=moved,
        version=version,
        record=record,
        target=target,
        rules=rules,
        stage_now=stage_of(record, rules),
        replaces=champion.number if champion and champion.pk != record.pk else None,
        gates=judge(case, gates),
        request=request if _awaits_approval(request, gates) else None,
        sequence=sequence,
        occupants=_occupants(line, target, number),
    )


def _occupants(line: ModelLine, target: Target, number: int) -> tuple[int, ...]:
    if target.kind is not TargetKind.STAGE:
        return ()
    others = VersionRecord.objects.filter(line=line, stage=target.name).exclude(number=number)
    return tuple(others.order_by("number").values_list("number", flat=True)[:_MOST_OCCUPANTS])


def _as_moved(details: ModelFacts, moves: list[Move]) -> ModelFacts:
    """Return a model with its aliases after these moves."""
    aliases = dict(details.aliases)
    for move in moves:
        if move.kind == TargetKind.ALIAS:
            aliases.pop(move.target, None)
            if move.version is not None:
                aliases[move.target] = move.version
    return replace(details, aliases=aliases)


def _awaits_approval(request: PromotionRequest | None, gates: list[Gate]) -> bool:
    return request is not None and needs_approval(gates)


def _require_target(rules: ProjectRules, target: Target) -> None:
    if target.kind is TargetKind.STAGE and target.name not in rules.stages:
        raise InvalidInput(
            f"This project has no stage {target.name}.",
            code="no_such_stage",
            field="stage",
            next_step=f"Its stages are {', '.join(rules.stages)}.",
        )
    reserved = target.name.lower() == "latest" or (
        target.name[:1] in "vV" and target.name[1:].isdecimal()
    )
    if target.kind is TargetKind.ALIAS and reserved:
        raise InvalidInput(
            f"{target.name} is not a valid alias: MLflow reads it as a version.",
            code="reserved_alias",
            field="alias",
            next_step="Choose another, for example champion.",
        )


def version_at_target(details: ModelFacts, line: ModelLine, target: Target) -> VersionRecord | None:
    """Return the present version at the target. For a stage, the one that entered last."""
    records = VersionRecord.objects.filter(line=line).select_related("line")
    if target.kind is TargetKind.ALIAS:
        at = details.aliases.get(target.name)
        if at is None:
            return None
        return records.get_or_create(line=line, number=at)[0]
    inside = set(records.filter(stage=target.name).values_list("number", flat=True))
    moves = Move.objects.filter(line=line, kind=TargetKind.STAGE, target=target.name)
    for number in moves.order_by("-sequence").values_list("version", flat=True)[:500]:
        if number in inside:
            return records.filter(number=number).first()
    return None


def _request_for(record: VersionRecord, target: Target) -> PromotionRequest | None:
    requests = PromotionRequest.objects.filter(
        record=record,
        kind=target.kind,
        target__iexact=target.name,
        state__in=[RequestState.OPEN, RequestState.APPROVED],
    )
    return requests.complete().order_by("state", "-pk").first()


def promote(
    *,
    project: Project,
    model: str,
    number: int,
    target: Target,
    by: Actor,
    sequence: int | None = None,
    override_reason: str | None = None,
    archive_replaced: bool | None = None,
) -> Move:
    """Move a version to a stage, or an alias to a version.

    `archive_replaced` moves the versions that are in the stage, or had the alias, to the last
    stage. None does so for stages between the first and the last.

    Of concurrent promotions of a model one succeeds and the others raise Conflict, as does one
    planned on an older `sequence`. Closed gates raise Conflict too, unless a maintainer gives a
    reason, which the audit log stores.
    """
    plan = plan_promotion(project=project, model=model, number=number, target=target)
    if sequence is not None and sequence != plan.sequence:
        raise _promotion_conflict(model)
    if plan.is_at_target:
        raise Conflict(plan.sentence, code="already_there", next_step="Nothing to do.")
    closed = [gate for gate in plan.gates if not gate.passed]
    if closed and override_reason is None:
        raise _refused(plan, closed)
    if closed:
        require_maintainer(project, by, to="pass closed gates")
    reason = override_reason if closed else None
    archived = _archived(plan, archive_replaced)
    with transaction.atomic():
        move = _write_move(plan, by, reason)
        for offset, replaced in enumerate(archived, start=1):
            _archive(plan, by, replaced, plan.sequence + offset)
        sync_on_commit(plan.record.line)
    return move


def _promotion_conflict(model: str) -> Conflict:
    return Conflict(
        f"Somebody else has just moved a version of {model}.",
        code="promotion_lost",
        next_step="Check the current versions, and promote again if it is still right.",
    )


def _refused(plan: PromotionPlan, closed: list[GateResult]) -> Conflict:
    first = closed[0]
    more = f" {len(closed) - 1} more gates are closed." if len(closed) > 1 else ""
    return Conflict(
        f"Version {plan.version.number} cannot be promoted to the {plan.target}: "
        f"{first.sentence}{more}",
        code="gate_closed",
        next_step=first.next_step,
    )


def _write_move(plan: PromotionPlan, by: Actor, override_reason: str | None) -> Move:
    """Write the move. `advance` serializes this part: concurrent promotions wait or lose."""
    line = plan.record.line
    if not ModelLine.objects.advance(line.pk, plan.sequence):
        raise _promotion_conflict(plan.model.name)
    if rules_of(line.project).revision != plan.rules.revision:
        raise _promotion_conflict(plan.model.name)
    request = plan.request if override_reason is None else None
    if request and not PromotionRequest.objects.move(request.pk, RequestState.USED):
        raise _promotion_conflict(plan.model.name)
    move = Move.objects.create(
        line=line,
        sequence=plan.sequence + 1,
        kind=plan.target.kind,
        target=plan.target.name,
        version=plan.version.number,
        replaced=plan.replaces,
        stage_before=plan.stage_now,
        gates=[gate.model_dump(mode="json") for gate in plan.gates],
        override_reason=override_reason or "",
        by=by.user,
    )
    if plan.target.kind is TargetKind.STAGE:
        VersionRecord.objects.filter(pk=plan.record.pk).update(stage=plan.target.name)
    _audit_move(line, move, plan)
    return move


def _audit_move(line: ModelLine, move: Move, plan: PromotionPlan) -> None:
    audit.record(
        "model.override" if move.override_reason else "model.promote",
        kind="model_version",
        target=plan.record,
        label=f"{plan.model.name} version {plan.version.number}",
        project=line.project,
        before={"stage": plan.stage_now, "replaced": plan.replaces},
        after={
            plan.target.kind.value: plan.target.name,
            "sequence": move.sequence,
            **({"override_reason": move.override_reason} if move.override_reason else {}),
        },
    )


def _archived(plan: PromotionPlan, requested: bool | None) -> list[VersionRecord]:
    """Return the versions that move to the last stage with this promotion."""
    if requested is None:
        numbers = plan.archives
    elif not requested or plan.rules.stages[-1] == plan.target.name:
        numbers = []
    elif plan.target.kind is TargetKind.STAGE:
        numbers = list(plan.occupants)
    else:
        numbers = [plan.replaces] if plan.replaces else []
    records = VersionRecord.objects.filter(line=plan.record.line, number__in=numbers)
    return list(records.exclude(stage=plan.rules.stages[-1]).order_by("number"))


def _archive(plan: PromotionPlan, by: Actor, replaced: VersionRecord, sequence: int) -> None:
    """Move a replaced version to the last stage, as a separate move in the history."""
    line, last = plan.record.line, str(plan.rules.stages[-1])
    if not ModelLine.objects.advance(line.pk, sequence):
        raise _promotion_conflict(plan.model.name)
    Move.objects.create(
        line=line,
        sequence=sequence + 1,
        kind=TargetKind.STAGE,
        target=last,
        version=replaced.number,
        stage_before=stage_of(replaced, plan.rules),
        by=by.user,
    )
    VersionRecord.objects.filter(pk=replaced.pk).update(stage=last)


def remove_alias(*, project: Project, model: str, alias: str, by: Actor) -> Move:
    """Remove an alias. Clients that load the model by it fail from then on.

    Only a maintainer may remove an alias that gates protect.
    """
    details = find_synced_model(project, model)
    line = ensure_line(project, details)
    # Read before MLflow's table: any later change increments it.
    sequence = ModelLine.objects.values_list("sequence", flat=True).get(pk=line.pk)
    at = find_model(project.pk, model).aliases.get(alias)
    if at is None:
        raise NotFound
    if gates_of(rules_of(project), Target(TargetKind.ALIAS, alias)):
        require_maintainer(project, by, to=f"remove the protected alias {alias}")
    with transaction.atomic():
        if not ModelLine.objects.advance(line.pk, sequence):
            raise _promotion_conflict(model)
        move = Move.objects.create(
            line=line,
            sequence=sequence + 1,
            kind=TargetKind.ALIAS,
            target=alias,
            replaced=at,
            by=by.user,
        )
        audit.record(
            "model.alias_removed",
            kind="model",
            target=line,
            label=model,
            project=project,
            before={"alias": alias, "version": at},
        )
        sync_on_commit(line)
    return move
