"""Runs: search, compare, change, delete, restore, metrics, artifacts."""

from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Query, Router
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.api.routing import gate
from portal.api.v1.run_serializers import (
    artifact_out,
    comparison_out,
    curve_out,
    run_detail_out,
    run_out,
)
from portal.api.v1.serializers import PageQuery
from portal.core.streams import ByteStream
from portal.experiments.factories import tracker
from portal.experiments.filters import MAX_LENGTH
from portal.experiments.gates import TrackedRunRole, gated_run
from portal.experiments.ports import Span, Stage
from portal.experiments.services import deletion, run_changes
from portal.experiments.services.artifacts import artifact_of, artifacts_of, read_artifact
from portal.experiments.services.queries import MOST_COLUMNS, MOST_SEARCHED, compare, search_of
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line, PageOf, Text
from slipway.schemas.experiments import (
    MOST_COMPARED,
    MOST_KEYS,
    ArtifactOut,
    Axis,
    ComparisonOut,
    CurveOut,
    RunChange,
    RunDetailOut,
    RunId,
    RunIds,
    RunOut,
    RunsMoved,
    RunsTagged,
    RunsToMove,
)

router = Router(tags=["Runs"])
_SEE = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_CHANGE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_CHANGE_RUN = TrackedRunRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_SEE_RUN = TrackedRunRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_BYTES = {
    "responses": {
        200: {
            "description": "The bytes of the artifact",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    }
}
_MOST_POINTS = 20_000
_MOST_AXIS = 2**63 - 1
AxisValue = Annotated[int, Field(ge=-_MOST_AXIS, le=_MOST_AXIS)]
Key = Annotated[Line, Field(min_length=1, max_length=250)]
Path = Annotated[Line, Field(max_length=1000)]


class RunsQuery(PageQuery):
    """Words, filter and sort order. `columns` selects fields, by default all."""

    search: Annotated[Line, Field(max_length=MOST_SEARCHED)] = ""
    filter: Annotated[Text, Field(max_length=MAX_LENGTH)] = ""
    experiment: list[Annotated[int, Field(ge=1, le=2**31 - 1)]] = Field(
        default_factory=list, max_length=100
    )
    order: Annotated[Line, Field(max_length=300)] = ""
    columns: list[Annotated[Line, Field(max_length=300)]] = Field(
        default_factory=list, max_length=MOST_COLUMNS
    )
    stage: Literal["active", "deleted"] = "active"


class CompareQuery(BaseModel):
    """Ids of runs."""

    run: list[RunId] = Field(default_factory=list, max_length=MOST_COMPARED)


class CurvesQuery(CompareQuery):
    """Metrics of runs, with at most `points` each, thinned out along `axis`.

    `start` and `end` limit them to a part of the axis, both included: steps, or milliseconds since
    1970 when `axis` is `time`.
    """

    key: list[Key] = Field(default_factory=list, max_length=MOST_KEYS)
    points: int = Field(default=1_000, ge=10, le=_MOST_POINTS)
    axis: Axis = "step"
    start: AxisValue | None = None
    end: AxisValue | None = None

    @property
    def span(self) -> Span | None:
        """The requested part of the axis."""
        if self.start is None and self.end is None:
            return None
        first = -_MOST_AXIS if self.start is None else self.start
        return first, _MOST_AXIS if self.end is None else self.end


class FolderQuery(BaseModel):
    """A file or folder among the artifacts. Empty means the root."""

    path: Path = ""


@router.get("/projects/{project}/runs", auth=gate(_SEE), response=PageOf[RunOut])
def search_runs(request: HttpRequest, project: str, query: Query[RunsQuery]) -> PageOf[RunOut]:
    """Search runs by MLflow's filter syntax, in an order such as `-metrics.loss`, newest first.

    Each word of `search` is in the name, the person, a tag or a parameter, or begins the id. An
    error in the filter is reported with its position.
    """
    page = tracker().search(
        search_of(
            project_id=gated_project(request).pk,
            experiments=query.experiment,
            words=query.search,
            filter_text=query.filter,
            order=query.order,
            columns=query.columns or None,
            stage=Stage(query.stage),
            limit=query.limit,
            cursor=query.cursor,
        )
    )
    return PageOf[RunOut](items=[run_out(run) for run in page.items], next_cursor=page.next_cursor)


@router.get("/projects/{project}/runs/compare", auth=gate(_SEE), response=ComparisonOut)
def compare_runs(request: HttpRequest, project: str, query: Query[CompareQuery]) -> ComparisonOut:
    """Compare runs: differing parameters, and the last values of their metrics."""
    run_comparison = compare(project_id=gated_project(request).pk, run_ids=query.run)
    return comparison_out(run_comparison)


@router.get("/projects/{project}/runs/curves", auth=gate(_SEE), response=list[CurveOut])
def get_metric_curves(
    request: HttpRequest, project: str, query: Query[CurvesQuery]
) -> list[CurveOut]:
    """Get metrics of runs over time.

    Long curves keep the minimum and maximum of each interval, and `total` is the number of all
    points.
    """
    curves = tracker().curves(
        gated_project(request).pk,
        query.run,
        query.key,
        most_points=query.points,
        axis=query.axis,
        span=query.span,
    )
    return [curve_out(curve) for curve in curves]


@router.post("/projects/{project}/runs/delete", auth=gate(_CHANGE), response=RunsMoved)
def delete_runs(request: HttpRequest, project: str, payload: RunIds) -> RunsMoved:
    """Move runs to the trash, from which they can be restored for thirty days."""
    return RunsMoved(
        runs=deletion.delete_runs(project=gated_project(request), run_ids=payload.runs)
    )


@router.post("/projects/{project}/runs/restore", auth=gate(_CHANGE), response=RunsMoved)
def restore_runs(request: HttpRequest, project: str, payload: RunIds) -> RunsMoved:
    """Restore runs from the trash, except those whose experiment is in it."""
    return RunsMoved(
        runs=deletion.restore_runs(project=gated_project(request), run_ids=payload.runs)
    )


@router.post("/projects/{project}/runs/tag", auth=gate(_CHANGE), response=RunsMoved)
def tag_runs(request: HttpRequest, project: str, payload: RunsTagged) -> RunsMoved:
    """Set tags of several runs, or remove them. Runs in the trash are not changed."""
    tagged = run_changes.tag_runs(
        project=gated_project(request), run_ids=payload.runs, tags=payload.tags
    )
    return RunsMoved(runs=tagged)


@router.post("/projects/{project}/runs/move", auth=gate(_CHANGE), response=RunsMoved)
def move_runs(request: HttpRequest, project: str, payload: RunsToMove) -> RunsMoved:
    """Move runs to another experiment of the project. Their artifacts stay where they are."""
    moved = run_changes.move_runs(
        project=gated_project(request), run_ids=payload.runs, experiment_id=payload.experiment
    )
    return RunsMoved(runs=moved)


@router.patch("/projects/{project}/runs/{run}", auth=gate(_CHANGE_RUN), response=RunDetailOut)
def update_run(request: HttpRequest, project: str, run: str, payload: RunChange) -> RunDetailOut:
    """Change the name, the notes (Markdown) and tags of a run."""
    changed = run_changes.change_run(
        project=gated_project(request), run=gated_run(request), change=payload
    )
    return run_detail_out(changed)


@router.get("/projects/{project}/runs/{run}", auth=gate(_SEE_RUN), response=RunDetailOut)
def get_run(request: HttpRequest, project: str, run: str) -> RunDetailOut:
    """Get a run, also from the trash."""
    return run_detail_out(gated_run(request))


@router.get(
    "/projects/{project}/runs/{run}/artifacts", auth=gate(_SEE_RUN), response=list[ArtifactOut]
)
def list_run_artifacts(
    request: HttpRequest, project: str, run: str, query: Query[FolderQuery]
) -> list[ArtifactOut]:
    """List a folder of the run's artifacts, folders first."""
    artifacts = artifacts_of(
        project_id=gated_project(request).pk, run=gated_run(request), path=query.path
    )
    return [artifact_out(artifact) for artifact in artifacts]


@router.get(
    "/projects/{project}/runs/{run}/artifacts/content",
    auth=gate(_SEE_RUN),
    response=None,
    openapi_extra=_BYTES,
)
def download_run_artifact(
    request: HttpRequest, project: str, run: str, query: Query[FolderQuery]
) -> ByteStream:
    """Download one file of the run's artifacts."""
    owner, value = gated_project(request).pk, gated_run(request)
    artifact = artifact_of(project_id=owner, run=value, path=query.path)
    pieces = read_artifact(
        project_id=owner, run=value, artifact=artifact, length=artifact.size_bytes
    )
    answer = ByteStream(pieces, content_type="application/octet-stream")
    answer.headers["Content-Length"] = str(artifact.size_bytes)
    answer.headers["Content-Disposition"] = "attachment"
    answer.headers["Cache-Control"] = "private, no-store"
    return answer
