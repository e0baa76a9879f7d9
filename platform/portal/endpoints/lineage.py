"""Revisions of endpoints in lineage graphs, downstream and upstream of model versions."""

from portal.accounts.models import Project
from portal.core.errors import NotFound
from portal.endpoints.lifecycle import EndpointState
from portal.endpoints.models import Revision
from portal.registry.ports import Descendants
from slipway.schemas.registry import LineageEdge, LineageNode, NodeKind

_MOST = 100


def revisions_of(*, project_id: str, model: str, version: int, key: str) -> Descendants:
    """Return the revisions that serve or served a version, and their predictions, as nodes."""
    value = Revision.objects.filter(
        endpoint__project=project_id, model=model, model_version=str(version)
    )
    present = value.exclude(endpoint__state=EndpointState.DELETED)
    nodes, edges = [], []
    revisions = list(present.select_related("endpoint").defer("served").order_by("-pk")[:_MOST])
    for revision in revisions:
        name = f"{revision.endpoint.name}/{revision.number}"
        served = _node(NodeKind.ENDPOINT, name, _label(revision), revision.state)
        nodes.append(served)
        edges.append(LineageEdge(source=key, target=served.key))
        if revision.answered:
            requests = "request" if revision.answered == 1 else "requests"
            label = f"{revision.answered:,} answered {requests}"
            given = _node(NodeKind.PREDICTIONS, name, label, revision.endpoint.name)
            nodes.append(given)
            edges.append(LineageEdge(source=served.key, target=given.key))
    left_out = present.count() - len(revisions) if len(revisions) == _MOST else 0
    return Descendants(nodes, edges, left_out)


def version_behind(*, project: Project, name: str) -> tuple[str, int]:
    """Return the model and version behind `ENDPOINT/REVISION`. Raises NotFound."""
    endpoint, _, number = name.rpartition("/")
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise NotFound
    revisions = Revision.objects.filter(
        endpoint__project=project, endpoint__name=endpoint, number=int(number)
    )
    present = revisions.exclude(endpoint__state=EndpointState.DELETED).defer("served")
    revision = present.first()
    if revision is None or not revision.model_version.isdecimal():
        raise NotFound
    return revision.model, int(revision.model_version)


def _label(revision: Revision) -> str:
    return f"{revision.endpoint.name} revision {revision.number}"


def _node(kind: NodeKind, name: str, label: str, detail: str) -> LineageNode:
    return LineageNode(key=f"{kind.value}:{name}", kind=kind, id=name, label=label, detail=detail)
