"""Presenters of endpoints: labels of states, traffic shares, examples of requests."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from portal.accounts.models import Project
from portal.core import clock
from portal.core.errors import NotFound
from portal.endpoints.lifecycle import (
    KEPT,
    EndpointState,
    ReplicaState,
    RevisionState,
    RolloutState,
)
from portal.endpoints.models import Endpoint, Replica, Revision, Rollout
from portal.endpoints.plans import step_at
from portal.endpoints.pools import unreachable_reasons
from portal.endpoints.services.queries import (
    EndpointStatus,
    Summary,
    example_of,
    nodes_of,
    pending_reason,
)
from portal.monitoring.notifications import open_alert_counts
from portal.registry.catalog import find_model, list_versions
from portal.registry.records import records_of, rules_of
from portal.registry.services.promotions import stage_of
from portal.workloads.costs import unix_ms, workload_cost, workload_price
from portal.workloads.explanations import Explainer
from slipway.schemas.endpoints import PlanKind

_E, _V, _P = EndpointState, RevisionState, ReplicaState
_ENDPOINTS = {
    _E.CREATING: ("starting", "strong"),
    _E.SERVING: ("serving", "ok"),
    _E.PAUSED: ("paused", "warn"),
    _E.FAILED: ("failed", "bad"),
    _E.DELETING: ("deleting", "warn"),
    _E.DELETED: ("deleted", ""),
}
_REVISIONS = {
    _V.PREPARING: ("preparing", "strong"),
    _V.READY: ("ready", "strong"),
    _V.SERVING: ("serving", "ok"),
    _V.STANDBY: ("warm", "warn"),
    _V.RETIRED: ("retired", ""),
    _V.FAILED: ("failed", "bad"),
}
_REPLICAS = {
    _P.STARTING: ("starting", "strong"),
    _P.LOADING: ("loading", "strong"),
    _P.WARMING: ("proving", "strong"),
    _P.READY: ("ready", "ok"),
    _P.DRAINING: ("draining", "warn"),
    _P.STOPPING: ("stopping", "warn"),
    _P.STOPPED: ("stopped", ""),
    _P.FAILED: ("failed", "bad"),
}
_WHY = {
    _E.CREATING: "Starting. It serves traffic once its golden predictions match.",
    _E.SERVING: "Serving.",
}
STATES = [(state.value, _ENDPOINTS[state][0]) for state in _E if state is not _E.DELETED]
_VERSIONS_OFFERED = 50
_PLANS = {
    PlanKind.ALL_AT_ONCE.value: "all at once",
    PlanKind.CANARY.value: "canary",
    PlanKind.SHADOW.value: "shadow",
}


@dataclass(frozen=True)
class StateLabel:
    """A state in one word, and the colour it is shown in."""

    label: str
    tone: str
    is_active: bool = False


def state_label(endpoint: Endpoint, *, ready: int) -> StateLabel:
    """Return the state of an endpoint in a word or two; `ready` counts its ready replicas."""
    if endpoint.status == _E.SERVING and endpoint.desired_replicas and not ready:
        return StateLabel("no replica ready", "warn")
    return StateLabel(*_ENDPOINTS[endpoint.status], is_active=endpoint.status == _E.CREATING)


def state_reason(endpoint: Endpoint, replicas: Sequence["ReplicaLine"] = ()) -> str:
    """Return why an endpoint is in its state, and what its replicas wait for if they do."""
    waiting = [
        replica for replica in replicas if replica.row.status == _P.STARTING and not replica.node
    ]
    if waiting and endpoint.desired_replicas:
        ready = sum(replica.row.status == _P.READY for replica in replicas)
        verb = "is" if ready == 1 else "are"
        message = f"{ready} of {endpoint.desired_replicas} replicas {verb} ready."
        if ready >= endpoint.desired_replicas:  # so it is the next revision that has no capacity
            message = f"Revision {waiting[-1].row.revision.number} is not serving yet."
        return f"{message} {waiting[-1].reason}"
    unreachable = [line for line in replicas if line.state.label == "unreachable"]
    if unreachable and not any(line.state.label == "ready" for line in replicas):
        return unreachable[-1].reason
    return endpoint.reason or endpoint.missing_replicas_reason or _WHY.get(endpoint.status, "")


def endpoint_rows(
    summaries: Sequence[Summary],
) -> list[tuple[Summary, StateLabel, str, int]]:
    """Return endpoints for a table, each with its state, the reason and its open alerts."""
    alerts = open_alert_counts(it.endpoint.pk for it in summaries)
    return [
        (
            it,
            state_label(it.endpoint, ready=it.ready),
            state_reason(it.endpoint),
            alerts.get(it.endpoint.pk, 0),
        )
        for it in summaries
    ]


def version_choices(project: Project, model: str) -> list[tuple[str, str]]:
    """Return the newest versions of a model, each with its stage and aliases in words."""
    try:
        records = records_of(find_model(project.pk, model)) if model else {}
    except NotFound:
        return []
    rules = rules_of(project)
    choices = []
    for version in list_versions(project.pk, model, limit=_VERSIONS_OFFERED).items:
        record = records.get(version.number)
        marks = [*([stage_of(record, rules)] if record else []), *version.aliases]
        choices.append((str(version.number), ", ".join(marks) or "no stage"))
    return choices


def url_of(endpoint: Endpoint) -> str:
    """Return where clients ask an endpoint for predictions."""
    return f"{settings.SLIPWAY_GATEWAY_URL}/v1/{endpoint.name}/invocations"


@dataclass(frozen=True)
class RevisionLine:
    """A revision on a page. `may_return` says that it can be promoted again."""

    row: Revision
    state: StateLabel
    ready: int
    desired: int
    may_return: bool


def _revision_label(status: EndpointStatus, revision: Revision) -> StateLabel:
    if status.state_of(revision) == "paused":
        return StateLabel("paused", "")
    return StateLabel(*_REVISIONS[revision.status])


def revisions_of(status: EndpointStatus) -> list[RevisionLine]:
    """Return the revisions of an endpoint as its page shows them."""
    return [
        RevisionLine(
            row=revision,
            state=_revision_label(status, revision),
            ready=status.ready[revision.pk],
            desired=status.desired_replicas(revision) if revision.status in KEPT else 0,
            may_return=revision.status in (_V.STANDBY, _V.RETIRED) and status.rollout is None,
        )
        for revision in status.revisions
    ]


@dataclass(frozen=True)
class RolloutLine:
    """A rollout on a page. `steps` are shares of the traffic with whether they are behind us."""

    row: Rollout
    plan: str
    sentence: str
    steps: Sequence[tuple[str, str]]
    next_at: datetime | None


def rollout_of(rollout: Rollout) -> RolloutLine:
    """Return the progress of a rollout."""
    step = step_at(rollout.steps, rollout.step)
    has_begun = rollout.step_since is not None
    next_at = None
    if rollout.step_since is not None and rollout.ended_at is None:
        next_at = rollout.step_since + step.bake
    return RolloutLine(
        row=rollout,
        plan=_PLANS.get(rollout.plan, rollout.plan),
        sentence=_sentence(rollout, step.describe()),
        steps=[
            (_share(item), _step_state(at, rollout.step, has_begun=has_begun))
            for at, item in enumerate(rollout.steps)
        ],
        next_at=next_at,
    )


def _sentence(rollout: Rollout, words: str) -> str:
    number = rollout.revision.number
    if rollout.status == RolloutState.ROLLING_BACK:
        return f"Revision {number} is being rolled back: {rollout.reason}"
    if rollout.step_since is None:
        return f"Revision {number} is starting; it gets traffic once its golden predictions match."
    return f"Revision {number}: {words}."


def _share(step: dict[str, float]) -> str:
    shadow = step.get("shadow_percent") or 0
    return f"{shadow:g} % copied" if shadow else f"{step['percent']} %"


def _step_state(at: int, step: int, *, has_begun: bool) -> str:
    if not has_begun or at > step:
        return "later"
    return "now" if at == step else "done"


@dataclass(frozen=True)
class ReplicaLine:
    """Replica on a page. Money in nano-USD."""

    row: Replica
    state: StateLabel
    reason: str
    node: str
    cost: int
    rate: int

    @property
    def startup_s(self) -> float | None:
        """Seconds until the replica was ready. None while it is not."""
        ready = self.row.ready_at
        return None if ready is None else (ready - self.row.created_at).total_seconds()

    @property
    def has_ended(self) -> bool:
        """True if the replica has stopped or failed."""
        return self.row.status in (_P.STOPPED, _P.FAILED)


def replica_lines(replicas: Sequence[Replica], explainer: Explainer) -> list[ReplicaLine]:
    """Return replicas as a page shows them."""
    nodes, unreachable = nodes_of(replicas), unreachable_reasons(replicas)
    return [
        _replica_line(replica, nodes, explainer, unreachable.get(replica.pk, ""))
        for replica in replicas
    ]


def _replica_line(
    replica: Replica, nodes: dict[str, str], explainer: Explainer, problem: str
) -> ReplicaLine:
    """Return a replica with its state. `nodes` has the node's name of each running workload.

    `problem` is why no gateway reaches a ready one in a pool.
    """
    workload = replica.workload
    ends = replica.status in (_P.STOPPED, _P.FAILED)
    return ReplicaLine(
        row=replica,
        state=StateLabel("unreachable", "warn")
        if problem
        else StateLabel(*_REPLICAS[replica.status]),
        reason=problem or replica.reason or pending_reason(replica, explainer),
        node=nodes.get(replica.workload_id or "", ""),
        cost=workload_cost(workload, until_ms=unix_ms(clock.now())) if workload else 0,
        rate=workload_price(workload) if workload and not ends and workload.leases.all() else 0,
    )


def replica_of(endpoint: Endpoint, replica_id: str) -> Replica:
    """Return one replica of an endpoint, or raise NotFound."""
    replicas = Replica.objects.filter(endpoint=endpoint, pk=replica_id)
    replica = replicas.select_related("revision", "workload__tier", "endpoint").first()
    if replica is None:
        raise NotFound
    return replica


def current_of(status: EndpointStatus) -> Revision | None:
    """Return the revision that answers most, or the newest while none does."""
    answering = [revision for revision in status.revisions if revision.weight]
    if answering:
        return max(answering, key=lambda revision_row: revision_row.weight)
    return status.revisions[0] if status.revisions else None


def example_for(revision: Revision | None) -> str:
    """Return an example request for an endpoint as indented JSON, or an empty string."""
    if revision is None:
        return ""
    text = example_of(revision)
    try:
        return json.dumps(json.loads(text), indent=2) if text else ""
    except ValueError:
        return ""


def _first_row_only(body: Any) -> Any:
    """Return a request with its first row alone, which is enough to show how one asks."""
    if not isinstance(body, dict):
        return body
    split = body.get("dataframe_split")
    if isinstance(split, dict) and isinstance(split.get("data"), list):
        first = {name: split[name][:1] for name in ("index", "data") if name in split}
        return body | {"dataframe_split": split | first}
    rows = {
        name: value[:1]
        for name, value in body.items()
        if name in ("inputs", "instances", "dataframe_records")
        and isinstance(value, list)
        # A list of named tensors is not a list of rows.
        and not (name == "inputs" and value and isinstance(value[0], dict))
    }
    return body | rows


def snippets_of(endpoint: Endpoint, example: str) -> list[tuple[str, str, str]]:
    """Return how to ask an endpoint from elsewhere: an id, a heading, the text to copy."""
    url = url_of(endpoint)
    body = (
        json.dumps(_first_row_only(json.loads(example))) if example else '{"inputs": [[1.0, 2.0]]}'
    )
    curl = (
        f"curl {shlex.quote(url)} \\\n"
        '  -H "Authorization: Bearer $SLIPWAY_ENDPOINT_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d {shlex.quote(body)}"
    )
    python = (
        "import slipway\n\n"
        f'endpoint = slipway.Endpoint("{endpoint.name}", project="{endpoint.project.slug}")\n'
        "print(endpoint.predict(table))  # a DataFrame, an array or a list of rows"
    )
    script = (
        f'const answer = await fetch("{url}", {{\n'
        '  method: "POST",\n'
        "  headers: {\n"
        "    Authorization: `Bearer ${process.env.SLIPWAY_ENDPOINT_KEY}`,\n"
        '    "Content-Type": "application/json",\n'
        "  },\n"
        f"  body: JSON.stringify({body}),\n"
        "});\n"
        "console.log((await answer.json()).predictions);"
    )
    return [
        ("ask-curl", "curl", curl),
        ("ask-python", "Python", python),
        ("ask-javascript", "JavaScript", script),
    ]
