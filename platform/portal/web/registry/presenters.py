"""Lineage of a model version, ready to be drawn."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.urls import reverse

from portal.accounts.models import Project
from portal.monitoring.lineage import data_behind
from slipway.schemas.registry import LineageNode, LineageOut, NodeKind

# Data and jobs both lead to runs, so they share a column.
_COLUMNS = (
    (NodeKind.DATASET, NodeKind.JOB),
    (NodeKind.RUN,),
    (NodeKind.VERSION,),
    (NodeKind.ENDPOINT,),
    (NodeKind.PREDICTIONS, NodeKind.BATCH_PREDICTION),
)
_ALWAYS = (NodeKind.DATASET, NodeKind.RUN, NodeKind.VERSION, NodeKind.ENDPOINT)
_HEADINGS = {
    NodeKind.DATASET: "Data",
    NodeKind.JOB: "Job",
    NodeKind.RUN: "Run",
    NodeKind.VERSION: "Version",
    NodeKind.ENDPOINT: "Endpoint",
    NodeKind.PREDICTIONS: "Predictions",
    NodeKind.BATCH_PREDICTION: "Predicted data",
}


@dataclass(frozen=True)
class LineageBox:
    """A node of the drawn lineage. `sources` are the labels of the nodes that lead to it."""

    node: LineageNode
    url: str
    sources: list[str]


@dataclass(frozen=True)
class LineageGroup:
    """Nodes of one kind below a heading."""

    heading: str
    boxes: list[LineageBox]


def lineage_columns(project: Project, graph: LineageOut) -> list[list[LineageGroup]]:
    """Return a graph as columns of groups, from data to data again."""
    labels = {node.key: node.label for node in graph.nodes}
    sources: dict[str, list[str]] = {}
    for edge in graph.edges:
        if edge.source in labels:
            sources.setdefault(edge.target, []).append(labels[edge.source])
    given = f"{NodeKind.PREDICTIONS}:"
    made = {edge.target for edge in graph.edges if edge.source.startswith(given)}

    def group(heading: str, nodes: Iterable[LineageNode]) -> LineageGroup:
        return LineageGroup(
            heading,
            [
                LineageBox(node, _address(project, node.kind, node.id), sources.get(node.key, []))
                for node in nodes
            ],
        )

    first = [node for node in graph.nodes if node.key not in made]
    columns = [
        [group(_HEADINGS[kind], (node for node in first if node.kind is kind)) for kind in kinds]
        for kinds in _COLUMNS
    ]
    columns.append([group("Data again", (node for node in graph.nodes if node.key in made))])
    always = {_HEADINGS[kind] for kind in _ALWAYS}
    shown = [[it for it in column if it.boxes or it.heading in always] for column in columns]
    return [column for column in shown if column]


def _address(project: Project, kind: NodeKind, name: str) -> str:
    if kind is NodeKind.JOB:
        return reverse("project_job", args=[project.slug, name])
    if kind is NodeKind.BATCH_PREDICTION:
        return reverse("project_batch_prediction", args=[project.slug, name])
    if kind is NodeKind.RUN:
        return reverse("project_run", args=[project.slug, name])
    if kind in (NodeKind.ENDPOINT, NodeKind.PREDICTIONS):
        endpoint = name.rpartition("/")[0]
        page = "project_endpoint" if kind is NodeKind.ENDPOINT else "project_endpoint_predictions"
        return reverse(page, args=[project.slug, endpoint])
    data = data_behind(project, name) if kind is NodeKind.DATASET else None
    if data is not None:
        where = [project.slug, data.dataset.name, data.number]
        return reverse("project_dataset_version", args=where)
    return ""
