"""Exported predictions in lineage graphs: edges from a revision to a dataset version."""

from portal.accounts.models import Project
from portal.datasets.models import Version
from portal.endpoints.models import Revision
from portal.monitoring.models import Selection
from portal.registry.ports import Descendants
from slipway.schemas.datasets import VersionState
from slipway.schemas.registry import LineageEdge, LineageNode, NodeKind

_MOST = 100
# MLflow stores this many characters of a digest. A run that reads the version has that name.
_DIGEST = 36


def data_of(*, project_id: str, model: str, version: int, key: str) -> Descendants:
    """Return the dataset versions that were created from predictions of a model version."""
    serving = Revision.objects.filter(
        endpoint__project=project_id, model=model, model_version=str(version)
    )
    revisions = {
        revision.pk: revision for revision in serving.select_related("endpoint").defer("served")
    }
    ready = Selection.objects.filter(
        endpoint__in={revision.endpoint_id for revision in revisions.values()},
        version__state=VersionState.READY,
    ).order_by("-pk")
    # `revisions` is JSON, in which SQLite cannot search: the ids come first, without their rows.
    selected = [
        pk for pk, used in ready.values_list("pk", "revisions") if revisions.keys() & set(used)
    ]
    nodes, edges = [], []
    for selection in ready.filter(pk__in=selected[:_MOST]).select_related("version__dataset"):
        if selection.version is None:
            continue
        data = _node(selection.version)
        nodes.append(data)
        for revision in (revisions[pk] for pk in selection.revisions if pk in revisions):
            source = f"{NodeKind.PREDICTIONS}:{revision.endpoint.name}/{revision.number}"
            edges.append(LineageEdge(source=source, target=data.key))
    left_out = max(0, len(selected) - _MOST)
    return Descendants(nodes, edges, left_out)


def _node(version: Version) -> LineageNode:
    name = f"{version.dataset.name}@{version.digest[:_DIGEST]}"
    return LineageNode(
        key=f"{NodeKind.DATASET}:{name}",
        kind=NodeKind.DATASET,
        id=name,
        label=version.reference,
        detail=version.digest[:_DIGEST],
    )


def data_behind(project: Project, name: str) -> Version | None:
    """Return the dataset version of a node of a graph, if it is one of Slipway's."""
    title, _, digest = name.rpartition("@")
    ready = Version.objects.filter(
        dataset__project=project, dataset__name=title, state=VersionState.READY
    )
    return ready.filter(digest__startswith=digest).order_by("number").first() if digest else None


def origin_of(version: Version) -> Selection | None:
    """Return the selection of predictions that a dataset version was created from."""
    selections = Selection.objects.filter(version=version).select_related("endpoint__project")
    return selections.order_by("pk").first()
