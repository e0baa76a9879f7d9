"""Batch predictions in lineage graphs: behind a version of a model, and behind their data."""

from portal.accounts.models import Project
from portal.batch_predictions.models import BatchPrediction
from portal.batch_predictions.services.outputs import output_version
from portal.core.errors import NotFound
from portal.datasets.models import Version
from portal.registry.ports import Descendants
from slipway.schemas.registry import LineageEdge, LineageNode, NodeKind

_MOST = 100
# MLflow stores 36 characters of a digest, and nodes of data are named by those.
_MLFLOW_DIGEST = 36


def predictions_of(*, project_id: str, model: str, version: int, key: str) -> Descendants:
    """Return the batch predictions of a version that have an output, and the data they read."""
    rows = BatchPrediction.objects.filter(
        job__workload__project=project_id, model=model, number=version, output__isnull=False
    )
    ready = rows.select_related("data__dataset", "output__dataset").defer("served")
    predictions = list(ready.order_by("-pk")[:_MOST])
    nodes: list[LineageNode] = []
    edges: list[LineageEdge] = []
    for prediction in predictions:
        output = output_version(prediction)
        if output is None:
            continue
        node = _node(
            NodeKind.BATCH_PREDICTION, prediction.pk, output.reference, prediction.data.reference
        )
        data = _data_node(prediction.data)
        nodes += [data, node]
        edges += [
            LineageEdge(source=key, target=node.key),
            LineageEdge(source=data.key, target=node.key),
        ]
    left_out = rows.count() - len(predictions) if len(predictions) == _MOST else 0
    return Descendants(nodes, edges, left_out)


def version_behind(*, project: Project, name: str) -> tuple[str, int]:
    """Return the model and version of a batch prediction, by its id. Raises NotFound."""
    rows = BatchPrediction.objects.filter(job__workload__project=project, pk=name)
    prediction = rows.only("model", "number").first()
    if prediction is None:
        raise NotFound
    return prediction.model, prediction.number


def origin_of(version: Version) -> BatchPrediction | None:
    """Return the batch prediction that has made a version of a dataset, None for other ones."""
    rows = BatchPrediction.objects.filter(output=version).defer("served")
    return rows.select_related("data__dataset", "job__workload").order_by("pk").first()


def _data_node(version: Version) -> LineageNode:
    digest = version.digest[:_MLFLOW_DIGEST]
    name = f"{version.dataset.name}@{digest}"
    return _node(NodeKind.DATASET, name, version.dataset.name, digest)


def _node(kind: NodeKind, name: str, label: str, detail: str) -> LineageNode:
    return LineageNode(key=f"{kind.value}:{name}", kind=kind, id=name, label=label, detail=detail)
