"""Demo steps: registered model versions, promotion gates, approval by a colleague, a stage."""

from typing import Final

from scripts.loop.data import PROJECT
from scripts.loop.steps import DemoError, show
from scripts.loop.training_run import MODEL
from scripts.loop.users import DemoUser
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
    """Return the model version that the job has registered, and print it."""
    for version in client.models.versions(MODEL, project=PROJECT):
        number = version.version
        nodes = client.models.lineage(MODEL, number, project=PROJECT).nodes
        if not any((node.kind, node.id) == (NodeKind.JOB, job.workload.id) for node in nodes):
            continue
        details = client.models.version(MODEL, number, project=PROJECT)
        show("model", f"{_page(client, number)}  by {job.workload.name}")
        show("golden", f"{details.golden.rows if details.golden else 0} predictions recorded")
        return number
    raise DemoError(f"the job {job.workload.name} registered no version of {MODEL}")


def _page(client: Client, number: int) -> str:
    return f"{client.url}/p/{PROJECT}/models/{MODEL}/versions/{number}"


def declare_gates(client: Client, data: DatasetVersionOut) -> None:
    """Set the four promotion gates of the stage, unless they are set."""
    gates: list[Gate] = [
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
    targets = [TargetGates(kind=TargetKind.STAGE, name=STAGE, gates=gates)]
    rules = client.models.rules(project=PROJECT)
    if rules.gates != targets:
        changed = RulesIn(stages=rules.stages, gates=targets, revision=rules.revision)
        client.models.put_rules(changed, project=PROJECT)
    show("gates", f"{client.url}/p/{PROJECT}/registry-rules")


def promote(author: DemoUser, colleague: DemoUser, number: int) -> None:
    """Promote a version to the stage through its gates, unless an earlier demo has done it."""
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
    """Request an approval, and let the colleague grant it."""
    request = _open_request(author.client, number) or author.client.models.request_approval(
        MODEL, number, project=PROJECT, stage=STAGE, note="Trained on two ranks by make demo."
    )
    show("requested", f"{author.name} requests approval of version {number}")
    decision = colleague.client.models.decide(
        MODEL,
        request.id,
        project=PROJECT,
        verdict=Verdict.APPROVE,
        note="The metrics are good.",
    )
    show(
        "approved",
        f"by {decision.decided_by.name if decision.decided_by else ''}: {decision.decision_note}",
    )


def _open_request(client: Client, number: int) -> RequestOut | None:
    """Return the open request of an earlier demo that was interrupted, if any."""
    for request in client.models.requests(MODEL, number, project=PROJECT):
        if (request.state, request.target) == (RequestState.OPEN, STAGE):
            return request
    return None
