"""Reports on the wire: pages of text with charts, tables and other objects of a project."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from slipway.schemas.accounts import UserOut
from slipway.schemas.base import AnswerSchema, Line, Name, Number, RequestSchema, Text, Truth, Whole
from slipway.schemas.experiments import Axis, RunId

MOST_BLOCKS = 60
MOST_TEXT_CHARACTERS = 20_000
MOST_CHART_RUNS = 20
MOST_CHART_METRICS = 8
MOST_TABLE_RUNS = 50
MOST_TABLE_COLUMNS = 12
MOST_CAPTION = 200

Caption = Annotated[Line, Field(max_length=MOST_CAPTION)]
ColumnName = Annotated[Line, Field(min_length=1, max_length=300)]
MetricKey = Annotated[Line, Field(min_length=1, max_length=250)]
TrafficRange = Literal["15m", "1h", "6h", "24h", "7d", "30d", "90d"]
ExportFormat = Literal["html", "pdf"]


class TextBlock(RequestSchema):
    """Markdown: headings, lists, tables, links and code. Raw HTML and images are not shown."""

    kind: Literal["text"]
    text: Annotated[Text, Field(max_length=MOST_TEXT_CHARACTERS)]


class ChartBlock(RequestSchema):
    """Metrics of runs over steps or time, one chart for each metric.

    `smooth` is the weight of an exponential moving average, 0 for none.
    """

    kind: Literal["chart"]
    runs: list[RunId] = Field(min_length=1, max_length=MOST_CHART_RUNS)
    metrics: list[MetricKey] = Field(min_length=1, max_length=MOST_CHART_METRICS)
    axis: Axis = "step"
    smooth: Number = Field(default=0.0, ge=0, lt=1)
    log_scale: Truth = False
    caption: Caption = ""


class RunsBlock(RequestSchema):
    """A table of the runs that match when the report is opened.

    `filter`, `search`, `order` and `columns` are those of the list of runs.
    """

    kind: Literal["runs"]
    filter: Annotated[Text, Field(max_length=6_000)] = ""
    search: Annotated[Line, Field(max_length=200)] = ""
    order: Annotated[Line, Field(max_length=300)] = ""
    columns: list[ColumnName] = Field(default=[], max_length=MOST_TABLE_COLUMNS)
    experiment: Whole | None = Field(default=None, ge=1, le=2**31 - 1)
    limit: Whole = Field(default=10, ge=1, le=MOST_TABLE_RUNS)
    caption: Caption = ""


class RunBlock(RequestSchema):
    """One run: its state, parameters and last metrics."""

    kind: Literal["run"]
    run: RunId
    caption: Caption = ""


class ModelVersionBlock(RequestSchema):
    """One version of a registered model: its stage, aliases, description and run."""

    kind: Literal["model_version"]
    model: Annotated[Line, Field(min_length=1, max_length=256)]
    version: Whole = Field(ge=1, le=2**31 - 1)
    caption: Caption = ""


class EndpointBlock(RequestSchema):
    """An endpoint: its state, and charts of its predictions in a time range up to now."""

    kind: Literal["endpoint"]
    endpoint: Annotated[Line, Field(min_length=1, max_length=48)]
    range: TrafficRange = "24h"
    caption: Caption = ""


class ArtifactBlock(RequestSchema):
    """A file among the artifacts of a run. Images are shown, other files are named."""

    kind: Literal["artifact"]
    run: RunId
    path: Annotated[Line, Field(min_length=1, max_length=1_000)]
    caption: Caption = ""


Block = Annotated[
    TextBlock
    | ChartBlock
    | RunsBlock
    | RunBlock
    | ModelVersionBlock
    | EndpointBlock
    | ArtifactBlock,
    Field(discriminator="kind"),
]


class ReportIn(RequestSchema):
    """A report to create. `blocks` are shown in their order."""

    title: Name
    blocks: list[Block] = Field(default=[], max_length=MOST_BLOCKS)


class ReportChange(ReportIn):
    """The whole new content of a report, edited from `version`.

    If the report has another version by then, nothing is saved.
    """

    version: Whole = Field(ge=1, le=2**31 - 2)


class ReportRestore(RequestSchema):
    """A restore of an earlier version, decided when the report had `version`."""

    version: Whole = Field(ge=1, le=2**31 - 2)


class ReportOut(AnswerSchema):
    """A report without its content. `shared_at` is set while a share link opens it."""

    id: str
    title: str
    version: int
    created_by: UserOut
    created_at: datetime
    saved_by: UserOut
    saved_at: datetime
    shared_at: datetime | None = None


class ReportDetail(ReportOut):
    """A report with its blocks, each with the fields of its `kind`."""

    blocks: list[dict[str, Any]]


class ReportVersionOut(AnswerSchema):
    """A saved version of a report, without its content."""

    number: int
    title: str
    saved_by: UserOut
    saved_at: datetime


class ReportVersionDetail(ReportVersionOut):
    """A saved version of a report with its blocks."""

    blocks: list[dict[str, Any]]


class ReportShared(AnswerSchema):
    """A new share link, which only this response contains."""

    link: str = Field(repr=False)
    shared_at: datetime
