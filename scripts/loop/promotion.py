"""The steps of the registry: what was registered, gates, an approval by somebody else, a stage."""

from typing import Final

from scripts.loop.data import PROJECT
from scripts.loop.people import DemoUser
from scripts.loop.steps import DemoError, show
from scripts.loop.training_run import MODEL
from slipway import Client
from slipway.schemas.datasets import DatasetVersionOut
from slipway.schemas.registry import (
    ApprovalGate,
    EvaluationGate,
    Gate,
    GoldenGate,
    NodeKind,
    RequestOut,
    RequestState,
    RulesIn,
    SignatureGate,
    TargetGates,
    TargetKind,
    Verdict,
)
from slipway.schemas.training import JobOut

STAGE: Final = "Production"
# Allowed loss of accuracy on the same data, compared with the version that is replaced.
_MARGIN: Final = -0.02


def version_of(client: Client, job: JobOut) -> int:
    """Return the version of the model that the job has registered, and show it."""
    for version in client.models.versions(MODEL, project=PROJECT):
        number = version.version
        nodes = client.models.lineage(MODEL, number, project=PROJECT).nodes
        if not any((one.kind, one.id) == (NodeKind.JOB, job.workload.id) for one in nodes):
            continue
        details = client.models.version(MODEL, number, project=PROJECT)
        show("model", f"{_page(client, number)}  by {job.workload.name}")
        show("golden", f"{details.golden.rows if details.golden else 0} predictions recorded")
        return number
    raise DemoError(f"the job {job.workload.name} registered no version of {MODEL}")


def _page(client: Client, number: int) -> str:
    return f"{client.url}/p/{PROJECT}/models/{MODEL}/versions/{number}"


def declare_gates(client: Client, data: DatasetVersionOut) -> None:
    """Ask four things of every version before it reaches the stage, unless they are asked."""
    asked: list[Gate] = [
        SignatureGate(kind="signature"),
        GoldenGate(kind="golden"),
        EvaluationGate(
            kind="evaluation",
            metric="accuracy",
            dataset=data.reference or "",
            margin=_MARGIN,
        ),
        ApprovalGate(kind="approval"),
    ]
    wanted = [TargetGates(kind=TargetKind.STAGE, name=STAGE, gates=asked)]
    rules = client.models.rules(project=PROJECT)
    if rules.gates != wanted:
        changed = RulesIn(stages=rules.stages, gates=wanted, revision=rules.revision)
        client.models.put_rules(changed, project=PROJECT)
    show("gates", f"{client.url}/p/{PROJECT}/registry-rules")


def promote(author: DemoUser, colleague: DemoUser, number: int) -> None:
    """Bring a version to the stage through its gates, unless it was brought there before."""
    models = author.client.models
    for move in models.history(MODEL, project=PROJECT):
        if (move.target, move.version) == (STAGE, number):
            for gate in move.gates:
                show("gate", f"{gate.kind.value}: open. {gate.sentence}")
            show("stage", f"{STAGE}: version {number}, approved and promoted by an earlier demo")
            return
    plan = models.plan(MODEL, number, project=PROJECT, stage=STAGE)
    for gate in plan.gates:
        show("gate", f"{gate.kind.value}: {'open' if gate.passed else 'closed'}. {gate.sentence}")
    if not plan.may_promote:
        _approve(author, colleague, number)
        plan = models.plan(MODEL, number, project=PROJECT, stage=STAGE)
    show("plan", plan.sentence)
    models.promote(MODEL, number, project=PROJECT, stage=STAGE, sequence=plan.sequence)
    show("stage", f"{STAGE}: version {number}  {_page(author.client, number)}")


def _approve(author: DemoUser, colleague: DemoUser, number: int) -> None:
    """Ask for the approval, and let the colleague give it."""
    request = _open_request(author.client, number) or author.client.models.request_approval(
        MODEL, number, project=PROJECT, stage=STAGE, note="Trained on two ranks by make demo."
    )
    show("asked", f"{author.name} requests approval of version {number}")
    done = colleague.client.models.decide(
        MODEL,
        request.id,
        project=PROJECT,
        verdict=Verdict.APPROVE,
        note="The metrics are good.",
    )
    show("approved", f"by {done.decided_by.name if done.decided_by else ''}: {done.decision_note}")


def _open_request(client: Client, number: int) -> RequestOut | None:
    """Return what a demo that was cut off has asked for already."""
    for request in client.models.requests(MODEL, number, project=PROJECT):
        if (request.state, request.target) == (RequestState.OPEN, STAGE):
            return request
    return None
