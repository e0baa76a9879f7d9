"""Promotion gates: checks of a version before it moves, and their messages."""

import math
from dataclasses import dataclass

from django.db.models import QuerySet

from portal.datasets.models import DatasetUse
from portal.datasets.models import Version as DataVersion
from portal.registry.models import Evaluation, ProjectRules, PromotionRequest, VersionRecord
from slipway.schemas.registry import (
    ApprovalGate,
    EvaluationGate,
    Gate,
    GateKind,
    GateResult,
    GoldenGate,
    RequestState,
    SignatureGate,
    TargetGates,
    TargetKind,
    spelled,
)


@dataclass(frozen=True)
class Target:
    """Target of a promotion: a stage or an alias."""

    kind: TargetKind
    name: str

    def __str__(self) -> str:
        return f"stage {self.name}" if self.kind is TargetKind.STAGE else f"alias {self.name}"


@dataclass(frozen=True)
class GateInput:
    """Input of the gates: a version, its target, and the present version there."""

    record: VersionRecord
    target: Target
    champion: VersionRecord | None
    request: PromotionRequest | None


def gates_of(rules: ProjectRules, target: Target) -> list[Gate]:
    """Return the gates of a target. Names are compared regardless of case."""
    requested = (target.kind, target.name.lower())
    for written in rules.gates:
        declared = TargetGates.model_validate(written)
        if (declared.kind, declared.name.lower()) == requested:
            return declared.gates
    return []


def judge(case: GateInput, gates: list[Gate]) -> list[GateResult]:
    """Return the result of each gate, in order."""
    return [_evaluate_gate(case, gate) for gate in gates]


def _evaluate_gate(case: GateInput, gate: Gate) -> GateResult:
    if isinstance(gate, SignatureGate):
        return _signature(case)
    if isinstance(gate, GoldenGate):
        return _golden(case)
    if isinstance(gate, EvaluationGate):
        return _evaluation(case, gate)
    return _approval(case, gate)


def _signature(case: GateInput) -> GateResult:
    record = case.record
    if record.signature:
        count = len(record.signature["inputs"])
        columns = "1 input" if count == 1 else f"{count} inputs"
        return _open(GateKind.SIGNATURE, f"Version {record.number} has a signature: {columns}.")
    if record.fault:
        return _closed(
            GateKind.SIGNATURE, record.fault, "Log the model again and register the new version."
        )
    return _closed(
        GateKind.SIGNATURE,
        f"Version {record.number} has no signature.",
        "Log the model with `signature=` or `input_example=`, and register that version.",
    )


def _golden(case: GateInput) -> GateResult:
    newest = case.record.goldens.first()
    if newest is None:
        return _closed(
            GateKind.GOLDEN,
            f"Version {case.record.number} has no recorded predictions.",
            "Register with `slipway.register(…, golden=(inputs, outputs))`, or add them to the "
            "version.",
        )
    rows = "1 prediction is" if newest.rows == 1 else f"{newest.rows} predictions are"
    return _open(GateKind.GOLDEN, f"{rows} recorded for comparison.")


def _newest_evaluation(record: VersionRecord, gate: EvaluationGate) -> Evaluation | None:
    """Return the newest value that was measured by a job that reads the named dataset."""
    evaluations = record.evaluations.filter(metric=gate.metric, dataset=gate.dataset)
    return evaluations.filter(workload_id__in=_readers(record, gate.dataset)).first()


def _readers(record: VersionRecord, dataset: str) -> QuerySet[DatasetUse, str | None]:
    """Return the ids of the jobs that read a dataset version such as `digits:3`."""
    name, _, number = dataset.rpartition(":")
    data = DataVersion.objects.ready().filter(
        dataset__project=record.line.project_id, dataset__name=name, number=int(number)
    )
    uses = DatasetUse.objects.filter(version__in=data, workload__isnull=False)
    return uses.values_list("workload_id", flat=True)


def _evaluation(case: GateInput, gate: EvaluationGate) -> GateResult:
    on = f"{gate.metric} on {gate.dataset}"
    evaluation = _newest_evaluation(case.record, gate)
    if evaluation is None:
        return _closed(
            GateKind.EVALUATION,
            f"No job has measured {on} for version {case.record.number}"
            f"{_uncounted_reason(case, gate)}.",
            f"Measure it in a job with `--dataset {gate.dataset}`: "
            f'`slipway.Model("{case.record.line.name}").version({case.record.number})'
            f'.evaluate({{"{gate.metric}": …}}, dataset="{gate.dataset}")`.',
        )
    ours = evaluation.figure
    if not math.isfinite(ours):
        return _closed(
            GateKind.EVALUATION,
            f"{on} is {spelled(ours)} for version {case.record.number}, which is not a valid "
            "value.",
            "Find out what went wrong in the evaluation, and measure again.",
        )
    champion = case.champion
    if champion is None or champion.pk == case.record.pk:
        return _open(
            GateKind.EVALUATION,
            f"{on} is {spelled(ours)}; the {case.target} has no current version to compare with.",
        )
    return _compared(case, gate, ours, champion)


def _uncounted_reason(case: GateInput, gate: EvaluationGate) -> str:
    """Return the reason why existing values do not count."""
    there = case.record.evaluations.filter(metric=gate.metric, dataset=gate.dataset)
    if there.exclude(workload_id="").exists():
        return f"; the job that reported a value did not read {gate.dataset}"
    if there.exists():
        return "; the existing value was not reported by a job"
    return ""


def _compared(
    case: GateInput, gate: EvaluationGate, ours: float, champion: VersionRecord
) -> GateResult:
    on = f"{gate.metric} on {gate.dataset}"
    theirs = _newest_evaluation(champion, gate)
    if theirs is None or not math.isfinite(theirs.figure):
        return _closed(
            GateKind.EVALUATION,
            f"{on} is {spelled(ours)}, but it is unknown for version {champion.number}, which is "
            f"currently at the {case.target}.",
            f"Measure version {champion.number} on {gate.dataset} in a job too.",
        )
    gain = ours - theirs.figure if gate.higher_is_better else theirs.figure - ours
    requested = "at least as good" if not gate.margin else f"better by {spelled(gate.margin)}"
    if gate.margin < 0:
        requested = f"at most {spelled(-gate.margin)} worse"
    against = f"{spelled(ours)} against {spelled(theirs.figure)} of version {champion.number}"
    if gain >= gate.margin:
        return _open(GateKind.EVALUATION, f"{on}: {against}; it is {requested}.")
    return _closed(
        GateKind.EVALUATION,
        f"{on}: {against}; it must be {requested}.",
        f"Register a version that does better on {gate.dataset}.",
    )


def _approval(case: GateInput, _gate: ApprovalGate) -> GateResult:
    request = case.request
    if request is None:
        return _closed(
            GateKind.APPROVAL,
            f"Nobody has requested approval of version {case.record.number} for the {case.target}.",
            "Request it; a maintainer of the project who is not the author can approve.",
        )
    if request.state != RequestState.APPROVED or request.decided_by is None:
        return _closed(
            GateKind.APPROVAL,
            f"{request.requested_by.display_name} has requested approval; it is pending.",
            "A maintainer of the project who is neither the author nor the requester can approve.",
        )
    return _open(GateKind.APPROVAL, f"{request.decided_by.display_name} has approved.")


def _open(kind: GateKind, sentence: str) -> GateResult:
    return GateResult(kind=kind, passed=True, sentence=sentence)


def _closed(kind: GateKind, sentence: str, next_step: str) -> GateResult:
    return GateResult(kind=kind, passed=False, sentence=sentence, next_step=next_step)


def needs_approval(gates: list[Gate]) -> bool:
    """Return whether one of the gates is an approval."""
    return any(isinstance(gate, ApprovalGate) for gate in gates)
