"""Serializers of registered models."""

from collections.abc import Mapping, Sequence

from portal.accounts.models import User
from portal.api.v1.serializers import user_out
from portal.registry.batching import describe_batching
from portal.registry.catalog import ModelFacts, VersionFacts
from portal.registry.logged_models import LoggedModelFacts
from portal.registry.model_inspection import digest_of
from portal.registry.models import (
    Evaluation,
    Move,
    ProjectRules,
    PromotionRequest,
    VersionRecord,
)
from portal.registry.promotion_gates import Target
from portal.registry.records import datetime_from_ms, line_of
from portal.registry.services.evaluations import golden_of
from portal.registry.services.promotions import PromotionPlan, stage_of
from slipway.schemas.logged_models import LoggedModelOut, RegisteredAs
from slipway.schemas.registry import (
    EvaluationOut,
    GateResult,
    GoldenFacts,
    ModelFileOut,
    ModelOut,
    ModelVersionOut,
    MoveOut,
    PlanOut,
    RequestOut,
    RequestState,
    RulesOut,
    TargetGates,
    TargetKind,
    VersionDetail,
    spelled,
)
from slipway.schemas.serving import ModelFormat
from slipway.schemas.signatures import SignatureOut

_MOST_EVALUATIONS = 200


def rules_out(rules: ProjectRules) -> RulesOut:
    gates = [TargetGates.model_validate(written) for written in rules.gates]
    return RulesOut(stages=rules.stages, gates=gates, revision=rules.revision)


def model_out(details: ModelFacts) -> ModelOut:
    """Serialize a model, with the newest version in each stage."""
    line = line_of(details)
    placed = VersionRecord.objects.filter(line=line).exclude(stage="").order_by("number")
    stages = dict(placed.values_list("stage", "number")) if line else {}
    return ModelOut(
        name=details.name,
        description=details.description,
        card=line.card if line else "",
        tags=details.tags,
        aliases=details.aliases,
        stages=stages,
        versions=details.versions,
        latest_version=details.latest,
        sequence=line.sequence if line else 0,
        created_at=datetime_from_ms(details.created_ms),
        updated_at=datetime_from_ms(details.updated_ms),
    )


def version_out(
    details: VersionFacts, rules: ProjectRules, record: VersionRecord | None
) -> ModelVersionOut:
    author: User | None = record.author if record else None
    return ModelVersionOut(
        model=details.model,
        version=details.number,
        stage=stage_of(record, rules),
        aliases=list(details.aliases),
        description=details.description,
        tags=details.tags,
        source=details.source,
        run_id=details.run_id or None,
        author=user_out(author) if author else None,
        created_at=datetime_from_ms(details.created_ms),
    )


def versions_out(
    items: Sequence[VersionFacts], rules: ProjectRules, records: Mapping[int, VersionRecord]
) -> list[ModelVersionOut]:
    return [version_out(details, rules, records.get(details.number)) for details in items]


def version_detail(
    details: VersionFacts, rules: ProjectRules, record: VersionRecord
) -> VersionDetail:
    """Serialize a version with the contents of its files."""
    golden = golden_of(record)
    evaluations = list(record.evaluations.select_related("recorded_by")[:_MOST_EVALUATIONS])
    return VersionDetail(
        **dict(version_out(details, rules, record)),
        format=ModelFormat(record.format) if record.format else None,
        flavors=record.flavors,
        signature=SignatureOut.model_validate(record.signature) if record.signature else None,
        example=record.example or None,
        fault=record.fault or None,
        files=[
            ModelFileOut(path=path, size_bytes=size, sha256=sha) for path, size, sha in record.files
        ],
        are_files_known=record.hashed_at is not None,
        size_bytes=sum(size for _, size, _ in record.files),
        digest=digest_of(record),
        golden=GoldenFacts(
            rows=golden.rows,
            sha256=golden.file.blob.sha256,
            absolute_tolerance=golden.absolute_tolerance,
            relative_tolerance=golden.relative_tolerance,
            created_at=golden.created_at,
        )
        if golden
        else None,
        batching=describe_batching(record, has_golden=golden is not None),
        evaluations=[evaluation_out(row) for row in evaluations],
        evaluations_left_out=record.evaluations.count() - len(evaluations),
    )


def evaluation_out(row: Evaluation) -> EvaluationOut:
    return EvaluationOut(
        id=row.pk,
        metric=row.metric,
        dataset=row.dataset,
        value=None if row.not_finite else row.figure,
        note=spelled(row.figure) if row.not_finite else "",
        is_verified=row.is_verified,
        workload=row.workload_id or None,
        run_id=row.run_id or None,
        recorded_by=user_out(row.recorded_by),
        created_at=row.created_at,
    )


def plan_out(plan: PromotionPlan) -> PlanOut:
    return PlanOut(
        model=plan.model.name,
        version=plan.version.number,
        kind=plan.target.kind,
        target=plan.target.name,
        stage_now=plan.stage_now,
        replaces=plan.replaces,
        archives=plan.archives,
        gates=plan.gates,
        may_promote=plan.may_promote,
        sequence=plan.sequence,
        sentence=plan.sentence,
    )


def move_out(move: Move) -> MoveOut:
    return MoveOut(
        id=move.pk,
        sequence=move.sequence,
        kind=TargetKind(move.kind),
        target=move.target,
        version=move.version,
        replaced=move.replaced,
        stage_before=move.stage_before or None,
        gates=[GateResult.model_validate(gate) for gate in move.gates],
        override_reason=move.override_reason or None,
        by=user_out(move.by),
        created_at=move.created_at,
    )


def request_out(request: PromotionRequest) -> RequestOut:
    return RequestOut(
        id=request.pk,
        model=request.record.line.name,
        version=request.record.number,
        kind=TargetKind(request.kind),
        target=request.target,
        state=RequestState(request.state),
        note=request.note,
        requested_by=user_out(request.requested_by),
        decided_by=user_out(request.decided_by) if request.decided_by else None,
        decision_note=request.decision_note,
        created_at=request.created_at,
        decided_at=request.decided_at,
    )


def target_of(stage: str | None, alias: str | None) -> Target:
    """Return the target, from exactly one of stage and alias."""
    if stage is not None:
        return Target(TargetKind.STAGE, stage)
    return Target(TargetKind.ALIAS, alias or "")


def logged_model_out(model: LoggedModelFacts) -> LoggedModelOut:
    """Serialize a model that a run logged."""
    return LoggedModelOut(
        source=model.source,
        name=model.name,
        run=model.run_id,
        step=model.step,
        created_at=None if model.created_ms is None else datetime_from_ms(model.created_ms),
        state=model.state or "ready",
        flavors=list(model.flavors),
        signature=SignatureOut.model_validate(model.signature) if model.signature else None,
        size_bytes=model.size_bytes,
        fault=model.fault,
        registered=[RegisteredAs(model=name, version=number) for name, number in model.versions],
    )
