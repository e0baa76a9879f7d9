"""Reads the objects of a report's blocks, all of them in the report's project and nowhere else.

An object of another project is missing, whatever its id: every query below has the project's id.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from pydantic import TypeAdapter, ValidationError

from portal.accounts.models import Project
from portal.core.errors import NotFound, SlipwayError
from portal.core.markdown import render_markdown
from portal.core.text import size_text, whole_characters
from portal.endpoints.models import Endpoint
from portal.endpoints.services.queries import endpoint_status
from portal.endpoints.services.traffic import RANGES, Minute, traffic_in
from portal.experiments.factories import tracker
from portal.experiments.filters import FieldKind, RunField
from portal.experiments.ports import Curve, RunDetail, RunFacts, Stage
from portal.experiments.results.images import (
    HEADER_BYTES,
    RASTER_TYPES,
    ImageRefused,
    checked_image,
)
from portal.experiments.services.artifacts import artifact_of, read_artifact
from portal.experiments.services.queries import search_of
from portal.registry.catalog import find_model, find_version
from portal.registry.records import records_of, rules_of
from portal.registry.services.promotions import stage_of
from portal.reports.content.line_charts import ChartLine, draw, smoothed, svg_of, swatch_of
from portal.reports.content.pieces import (
    BlockContent,
    Cell,
    Figure,
    Image,
    LegendEntry,
    Table,
)
from slipway.schemas.reports import (
    ArtifactBlock,
    Block,
    ChartBlock,
    EndpointBlock,
    ModelVersionBlock,
    RunBlock,
    RunsBlock,
    TextBlock,
)

MOST_IMAGE_BYTES = 4 * 1024**2
MOST_IMAGES_BYTES = 16 * 1024**2
_POINTS = 400
_OWN_METRICS, _OWN_PARAMS, _SAMPLED = 4, 3, 5
_MOST_VALUES = 24
_MOST_CELL = 200
_NONE = "–"  # noqa: RUF001  (as in the lists of the portal)
_STATUS = {"KILLED": "stopped"}
_BLOCK: TypeAdapter[Block] = TypeAdapter(Block)


@dataclass
class ReportReader:
    """Reads blocks of one project.

    `links` adds addresses of pages of the project and leaves images to their own address. Without
    it a report stands alone: images are inside, at most MOST_IMAGES_BYTES together.
    `may_see_endpoints` is False for tokens that cannot read endpoints.
    """

    project: Project
    links: bool = False
    may_see_endpoints: bool = True
    image_bytes: int = 0

    def read(self, blocks: Sequence[Mapping[str, Any]]) -> list[BlockContent]:
        """Return what the stored blocks show now."""
        return [self._read(stored) for stored in blocks]

    def _read(self, stored: Mapping[str, Any]) -> BlockContent:
        try:
            block = _BLOCK.validate_python(dict(stored))
        except ValidationError:
            return BlockContent("text", missing="This block cannot be read.")
        try:
            return self._content(block)
        except NotFound:
            return BlockContent(block.kind, _caption(block), missing=_GONE[block.kind])
        except SlipwayError as error:
            words = " ".join(filter(None, (error.message, error.next_step)))
            return BlockContent(block.kind, _caption(block), missing=words)

    def _content(self, block: Block) -> BlockContent:
        match block:
            case TextBlock():
                return BlockContent("text", text=block.text, html=render_markdown(block.text))
            case ChartBlock():
                return self._chart(block)
            case RunsBlock():
                return self._runs(block)
            case RunBlock():
                return self._run(block)
            case ModelVersionBlock():
                return self._version(block)
            case EndpointBlock():
                return self._endpoint(block)
            case ArtifactBlock():
                return self._artifact(block)

    def _url(self, page: str, *args: object, **query: str) -> str:
        if not self.links:
            return ""
        address = reverse(page, args=[self.project.slug, *args])
        return f"{address}?{urlencode(query)}" if query else address

    def _run_cell(self, run: RunFacts) -> Cell:
        return Cell(run.name or run.id, self._url("project_run", run.id))

    def _chart(self, block: ChartBlock) -> BlockContent:
        runs = tracker().runs(self.project.pk, block.runs)
        gone = len(set(block.runs)) - len(runs)
        if not runs:
            raise NotFound
        curves = tracker().curves(
            self.project.pk,
            [run.id for run in runs],
            block.metrics,
            most_points=_POINTS,
            axis=block.axis,
        )
        places = {run.id: at for at, run in enumerate(runs)}
        names = {run.id: run.name or run.id for run in runs}
        figures = [self._metric(block, key, curves, places, names) for key in block.metrics]
        legend = [
            LegendEntry(places[run.id], swatch_of(places[run.id]), cell.text, cell.url)
            for run in runs
            for cell in [self._run_cell(run)]
        ]
        # A report may name ids that never were in its project, so "deleted" would be a guess.
        noun = "run of this chart is" if gone == 1 else "runs of this chart are"
        notes = [f"{gone} {noun} not in this project."] if gone else []
        return BlockContent("chart", block.caption, legend=legend, figures=figures, notes=notes)

    def _metric(
        self,
        block: ChartBlock,
        key: str,
        curves: Sequence[Curve],
        places: Mapping[str, int],
        names: Mapping[str, str],
    ) -> Figure:
        series = []
        for curve in curves:
            if curve.key != key or curve.run_id not in places:
                continue
            points = [
                (float(it.timestamp_ms if block.axis == "time" else it.step), it.value)
                for it in curve.points
            ]
            name = names[curve.run_id]
            series.append(ChartLine(places[curve.run_id], name, smoothed(points, block.smooth)))
        drawing = draw(series, is_time=block.axis == "time", log_scale=block.log_scale)
        note = "No values are logged." if not series else ""
        if drawing.omitted:
            noun = "value is" if drawing.omitted == 1 else "values are"
            note = f"{drawing.omitted} {noun} not shown: not finite, or not on a log scale."
        live = None
        if self.links and series:
            live = {
                "key": key,
                "runs": [{"id": run, "at": at, "name": names[run]} for run, at in places.items()],
                "x": block.axis,
                "smooth": block.smooth,
                "log": block.log_scale,
            }
        return Figure(key, drawing, svg_of(drawing, key), note, live)

    def _runs(self, block: RunsBlock) -> BlockContent:
        experiments = () if block.experiment is None else (block.experiment,)
        search = search_of(
            project_id=self.project.pk,
            experiments=experiments,
            filter_text=block.filter,
            words=block.search,
            order=block.order,
            columns=block.columns or None,
            limit=block.limit,
        )
        page = tracker().search(search)
        columns = search.columns if search.columns is not None else _own_columns(page.items)
        rows = [
            (self._run_cell(run), Cell(_status(run)), *(_value(run, it) for it in columns))
            for run in page.items
        ]
        headings = ["Run", "State", *(column.key for column in columns)]
        query = {"q": block.search, "filter": block.filter, "order": block.order}
        asked_for = {name: value for name, value in query.items() if value}
        heading = Cell("Runs", self._runs_url(block, asked_for))
        missing = "" if rows else "No runs match."
        notes = [f"The first {block.limit} runs are shown."] if page.next_cursor else []
        return BlockContent(
            "runs",
            block.caption,
            heading=heading,
            missing=missing,
            table=Table(headings, rows) if rows else None,
            notes=notes,
        )

    def _runs_url(self, block: RunsBlock, query: dict[str, str]) -> str:
        if block.experiment is None:
            return self._url("project_runs", **query)
        return self._url("project_experiment", block.experiment, **query)

    def _active_run(self, run_id: str) -> RunDetail:
        run = tracker().run(self.project.pk, run_id)
        if run is None or run.facts.stage is Stage.DELETED:
            raise NotFound
        return run

    def _run(self, block: RunBlock) -> BlockContent:
        run = self._active_run(block.run)
        details = [
            ("State", Cell(_status(run.facts))),
            ("Experiment", Cell(run.experiment)),
            ("By", Cell(run.facts.user or "unknown user")),
            ("Started", Cell(_time_text(run.facts.started_ms))),
        ]
        values = [
            *((f"metrics.{it.key}", number_text(it.value), True) for it in run.metrics),
            *((f"params.{key}", value, False) for key, value in run.facts.params.items()),
        ]
        rows = [
            (Cell(name), Cell(_short(text), is_number=is_number))
            for name, text, is_number in values[:_MOST_VALUES]
        ]
        left_out = len(values) - len(rows)
        notes = [f"{left_out} more values are on the page of the run."] if left_out else []
        return BlockContent(
            "run",
            block.caption,
            heading=self._run_cell(run.facts),
            details=details,
            table=Table(["Name", "Value"], rows) if rows else None,
            notes=notes,
        )

    def _version(self, block: ModelVersionBlock) -> BlockContent:
        version = find_version(self.project.pk, block.model, block.version)
        model = find_model(self.project.pk, block.model)
        stage = stage_of(records_of(model).get(version.number), rules_of(self.project))
        details = [
            ("Stage", Cell(stage)),
            ("Registered", Cell(_time_text(version.created_ms))),
        ]
        if version.aliases:
            details.append(("Aliases", Cell(", ".join(f"@{it}" for it in version.aliases))))
        run = tracker().run(self.project.pk, version.run_id) if version.run_id else None
        if run is not None:
            details.append(("Run", self._run_cell(run.facts)))
        url = self._url("project_model_version", block.model, block.version)
        return BlockContent(
            "model_version",
            block.caption,
            heading=Cell(f"{block.model}, version {block.version}", url),
            details=details,
            text=version.description,
            html=render_markdown(version.description),
        )

    def _endpoint(self, block: EndpointBlock) -> BlockContent:
        if not self.may_see_endpoints:
            return BlockContent(
                "endpoint", block.caption, missing="This token cannot read endpoints."
            )
        endpoints = Endpoint.objects.of_project(self.project).select_related("tier")
        endpoint = endpoints.filter(name=block.endpoint).first()
        if endpoint is None:
            raise NotFound
        chosen = RANGES[block.range]
        minutes = traffic_in(endpoint, chosen)
        serving = ", ".join(
            f"{it.model} {it.model_version} ({it.weight} %)"
            for it in endpoint_status(endpoint).serving
        )
        answered = sum(minute.answered for minute in minutes)
        failed = sum(minute.failed for minute in minutes)
        details = [
            ("State", Cell(endpoint.state)),
            ("Serving", Cell(serving or "no version")),
            ("Answered requests", Cell(f"{answered:,}")),
            ("Failed requests", Cell(f"{failed:,}")),
        ]
        figures = [
            _traffic_figure("Requests per second", minutes, lambda minute: minute.rps),
            _traffic_figure("p95 latency (ms)", minutes, lambda minute: minute.p95_ms),
        ]
        return BlockContent(
            "endpoint",
            block.caption,
            heading=Cell(endpoint.name, self._url("project_endpoint", endpoint.name)),
            details=details,
            figures=figures if minutes else [],
            notes=[chosen.label + ("." if minutes else ": no requests.")],
        )

    def _artifact(self, block: ArtifactBlock) -> BlockContent:
        run = self._active_run(block.run)
        artifact = artifact_of(project_id=self.project.pk, run=run, path=block.path)
        url = self._url("project_run", block.run, path=artifact.path)
        heading = Cell(artifact.path, url)
        details = [
            ("Run", self._run_cell(run.facts)),
            ("Size", Cell(size_text(artifact.size_bytes))),
        ]
        ending = artifact.path.rpartition(".")[2].lower()
        image, note = None, ""
        if ending in RASTER_TYPES:
            try:
                image = self._image(run, artifact.path)
            except ImageRefused as refused:
                note = str(refused)
        return BlockContent(
            "artifact",
            block.caption,
            heading=heading,
            details=() if image else details,
            image=image,
            notes=[note] if note else [],
        )

    def _image(self, run: RunDetail, path: str) -> Image:
        """Return a checked image. Raises ImageRefused if it is none, or too large to be inside."""
        artifact = artifact_of(project_id=self.project.pk, run=run, path=path)
        size = artifact.size_bytes
        if self.links:
            url = self._url("project_run_media", run.facts.id, path=path)
            return Image(url, artifact.name)
        if size > MOST_IMAGE_BYTES or self.image_bytes + size > MOST_IMAGES_BYTES:
            raise ImageRefused(
                f"This image has {size_text(size)}. An image of at most "
                f"{size_text(MOST_IMAGE_BYTES)}, and {size_text(MOST_IMAGES_BYTES)} of images "
                "together, are included."
            )
        pieces = read_artifact(project_id=self.project.pk, run=run, artifact=artifact, length=size)
        content = b"".join(pieces)
        mime = checked_image(content[:HEADER_BYTES]).mime
        self.image_bytes += size
        encoded = base64.b64encode(content).decode()
        return Image(f"data:{mime};base64,{encoded}", artifact.name, content)


_GONE = {
    "text": "",
    "chart": "The runs of this chart no longer exist.",
    "runs": "These runs no longer exist.",
    "run": "This run no longer exists.",
    "model_version": "This model version no longer exists.",
    "endpoint": "This endpoint no longer exists.",
    "artifact": "This file or its run no longer exists.",
}


def number_text(value: float) -> str:
    """Return a value of a metric with six digits, or a word for one that is not finite."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.6g}"


def _caption(block: Block) -> str:
    return "" if isinstance(block, TextBlock) else block.caption


def _status(run: RunFacts) -> str:
    return _STATUS.get(run.status, run.status.lower())


def _short(text: str) -> str:
    text = whole_characters(text)
    return text if len(text) <= _MOST_CELL else f"{text[: _MOST_CELL - 1]}…"


def _time_text(milliseconds: int | None) -> str:
    try:
        timestamp = datetime.fromtimestamp((milliseconds or 0) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return "unknown"
    return f"{timestamp:%Y-%m-%d %H:%M} UTC" if milliseconds else "unknown"


def _own_columns(runs: Sequence[RunFacts]) -> list[RunField]:
    """Return the first metrics and parameters of the first runs."""
    sample = runs[:_SAMPLED]
    metrics = dict.fromkeys(key for run in sample for key in run.metrics)
    params = dict.fromkeys(key for run in sample for key in run.params)
    return [
        *(RunField(FieldKind.METRIC, key) for key in list(metrics)[:_OWN_METRICS]),
        *(RunField(FieldKind.PARAM, key) for key in list(params)[:_OWN_PARAMS]),
    ]


def _value(run: RunFacts, column: RunField) -> Cell:
    if column.kind is FieldKind.METRIC:
        value = run.metrics.get(column.key)
        return Cell(_NONE if value is None else number_text(value), is_number=True)
    if column.kind is FieldKind.PARAM:
        return Cell(_short(run.params.get(column.key, _NONE)))
    if column.kind is FieldKind.TAG:
        return Cell(_short(run.tags.get(column.key, _NONE)))
    return Cell({"run_id": run.id, "user_id": run.user}.get(column.key, _NONE))


def _traffic_figure(title: str, minutes: Sequence[Minute], value: Any) -> Figure:
    points = [
        (minute.at.timestamp() * 1000, float(y))
        for minute in minutes
        if (y := value(minute)) is not None
    ]
    drawing = draw([ChartLine(0, title, points)], is_time=True)
    return Figure(title, drawing, svg_of(drawing, title))
