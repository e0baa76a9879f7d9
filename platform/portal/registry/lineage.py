"""Lineage of model versions: their sources and their uses, within one project."""

from collections.abc import Iterable

from portal.accounts.models import Project
from portal.core.errors import NotFound
from portal.experiments.models import Input, LoggedDataset, Run, Tag
from portal.experiments.services.job_runs import JOB_TAG
from portal.registry.catalog import VersionFacts, find_version, versions_of_runs
from portal.registry.ports import downstream, upstream
from portal.workloads.models import Workload
from slipway.schemas.registry import LineageEdge, LineageNode, LineageOut, NodeKind

_MOST_RUNS = 100


class _Graph:
    """Nodes and edges, each once, in the order of insertion."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._nodes: dict[str, LineageNode] = {}
        self._edges: dict[tuple[str, str], LineageEdge] = {}
        self.left_out = 0

    def node(self, kind: NodeKind, name: str, label: str, detail: str = "") -> str:
        """Add a node. Returns its key."""
        key = f"{kind.value}:{name}"
        lineage_node = LineageNode(key=key, kind=kind, id=name, label=label, detail=detail)
        self._nodes.setdefault(key, lineage_node)
        return key

    def edge(self, source: str, target: str) -> None:
        """Add an edge."""
        self._edges.setdefault((source, target), LineageEdge(source=source, target=target))

    def merge(self, nodes: Iterable[LineageNode], edges: Iterable[LineageEdge]) -> None:
        """Add nodes and edges that another app provides."""
        for node in nodes:
            self._nodes.setdefault(node.key, node)
        for edge in edges:
            self.edge(edge.source, edge.target)

    def answer(self) -> LineageOut:
        """Return the whole graph."""
        return LineageOut(
            nodes=list(self._nodes.values()),
            edges=list(self._edges.values()),
            left_out=self.left_out,
        )


def lineage_of_version(project: Project, model: str, number: int) -> LineageOut:
    """Return the sources and the uses of a version. Raises NotFound."""
    graph = _Graph(project)
    version = find_version(project.pk, model, number)
    runs = _add_runs(graph, [version.run_id])
    _add_version(graph, version, runs)
    return graph.answer()


def lineage_of(project: Project, kind: NodeKind, name: str) -> LineageOut:
    """Return the lineage around a node of a graph. Raises NotFound if it does not exist."""
    if kind is NodeKind.VERSION:
        model, _, number = name.rpartition("/")
        if not (number.isascii() and number.isdecimal() and len(number) < 10):
            raise NotFound
        return lineage_of_version(project, model, int(number))
    above = upstream(kind)
    if above is not None:
        return lineage_of_version(project, *above(project=project, name=name))
    graph = _Graph(project)
    if kind is NodeKind.RUN:
        requested = [name]
    elif kind is NodeKind.JOB:
        requested = _runs_of_job(graph, name)
    elif kind is NodeKind.DATASET:
        requested = _runs_of_dataset(graph, name)
    else:
        raise NotFound
    runs = _add_runs(graph, requested)
    if kind is NodeKind.RUN and not runs:
        raise NotFound
    versions, left_out = versions_of_runs(project.pk, runs)
    graph.left_out += left_out
    for version in versions:
        _add_version(graph, version, runs)
    return graph.answer()


def _add_version(graph: _Graph, version: VersionFacts, runs: dict[str, str]) -> None:
    name = f"{version.model}/{version.number}"
    label = f"{version.model} version {version.number}"
    key = graph.node(NodeKind.VERSION, name, label, ", ".join(version.aliases))
    if version.run_id in runs:
        graph.edge(runs[version.run_id], key)
    for source in downstream():
        descendants = source(
            project_id=graph.project.pk, model=version.model, version=version.number, key=key
        )
        graph.merge(descendants.nodes, descendants.edges)
        graph.left_out += descendants.left_out


def _add_runs(graph: _Graph, run_ids: Iterable[str]) -> dict[str, str]:
    """Add runs with their jobs and the datasets they read. Returns their keys by id."""
    ids = list(dict.fromkeys(run_ids))
    rows = Run.objects.in_projects([graph.project.pk]).filter(run_uuid__in=ids[:_MOST_RUNS])
    graph.left_out += len(ids[_MOST_RUNS:])
    keys = {
        row.run_uuid: graph.node(
            NodeKind.RUN, row.run_uuid, row.name or row.run_uuid[:8], row.status.lower()
        )
        for row in rows
    }
    _add_jobs(graph, keys)
    _add_data(graph, keys)
    return keys


def _add_jobs(graph: _Graph, runs: dict[str, str]) -> None:
    tags = Tag.objects.filter(run__in=list(runs), key=JOB_TAG)
    tags_by_id = {tag.run_id: tag.value or "" for tag in tags}
    # The run's owner can write any tag: only a job of this project is accepted.
    jobs = Workload.objects.filter(project=graph.project, pk__in=list(tags_by_id.values()))
    known = {job.pk: job for job in jobs}
    for run_id, workload_id in tags_by_id.items():
        job = known.get(workload_id)
        if job is not None:
            key = graph.node(NodeKind.JOB, job.pk, job.name, str(job.state))
            graph.edge(key, runs[run_id])


def _add_data(graph: _Graph, runs: dict[str, str]) -> None:
    inputs = Input.objects.filter(
        source_type="DATASET", destination_type="RUN", destination_id__in=list(runs)
    )
    readers = [(row.source_id, row.destination_id) for row in inputs]
    logged_datasets = LoggedDataset.objects.filter(
        dataset_uuid__in={source for source, _ in readers},
        experiment__workspace=graph.project.pk,
    )
    known = {row.dataset_uuid: row for row in logged_datasets}
    for source, run_id in readers:
        data = known.get(source)
        if data is not None:
            name = f"{data.name}@{data.digest}"
            key = graph.node(NodeKind.DATASET, name, data.name, data.digest)
            graph.edge(key, runs[run_id])


def _runs_of_job(graph: _Graph, workload_id: str) -> list[str]:
    job = Workload.objects.filter(project=graph.project, pk=workload_id).first()
    if job is None:
        raise NotFound
    graph.node(NodeKind.JOB, job.pk, job.name, str(job.state))
    tags = Tag.objects.filter(
        key=JOB_TAG, value=workload_id, run__experiment__workspace=graph.project.pk
    )
    return list(tags.order_by("-run__start_time").values_list("run_id", flat=True))


def _runs_of_dataset(graph: _Graph, name: str) -> list[str]:
    title, _, digest = name.rpartition("@")
    logged_datasets = LoggedDataset.objects.filter(
        experiment__workspace=graph.project.pk, name=title, digest=digest
    )
    uuids = list(logged_datasets.values_list("dataset_uuid", flat=True))
    if not uuids:
        raise NotFound
    graph.node(NodeKind.DATASET, name, title, digest)
    inputs = Input.objects.filter(
        source_type="DATASET", source_id__in=uuids, destination_type="RUN"
    )
    return list(inputs.values_list("destination_id", flat=True))
