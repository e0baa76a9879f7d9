"""Interfaces to the tracking store for pages and the API. `adapters/mlflow` implements them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol

from portal.experiments.filters import FieldKind, FilterCondition, RunField
from portal.storage.ports import CleanupResult

Axis = Literal["step", "time"]
# A part of an axis, both ends included: steps, or milliseconds since 1970.
Span = tuple[int, int]


class Stage(StrEnum):
    """Lifecycle stage: in use or in the trash."""

    ACTIVE = "active"
    DELETED = "deleted"


@dataclass(frozen=True)
class ExperimentFacts:
    """An experiment. Times are milliseconds since 1970. `newest_ms` is when its last run began."""

    id: int
    name: str
    stage: Stage
    note: str
    created_ms: int | None
    deleted_ms: int | None
    runs: int
    newest_ms: int | None


@dataclass(frozen=True)
class RunFacts:
    """A run, with the values of the columns that were asked for. Times are milliseconds."""

    id: str
    experiment_id: int
    name: str
    status: str
    stage: Stage
    user: str
    started_ms: int | None
    ended_ms: int | None
    metrics: dict[str, float] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LatestValue:
    """The last point of a curve. `value` may be NaN or infinite."""

    key: str
    value: float
    step: int
    timestamp_ms: int


@dataclass(frozen=True)
class DataInput:
    """A data set a run has read. `context` says what for, such as `training`."""

    name: str
    digest: str
    source_type: str
    source: str
    context: str


@dataclass(frozen=True)
class RunDetail:
    """One run with all that was logged to it."""

    facts: RunFacts
    experiment: str
    artifact_uri: str
    metrics: Sequence[LatestValue]
    inputs: Sequence[DataInput]


@dataclass(frozen=True)
class SortOrder:
    """Field and direction by which runs are sorted. Runs without a value come last."""

    field: RunField
    descending: bool = True


NEWEST = SortOrder(RunField(FieldKind.ATTRIBUTE, "start_time"))


@dataclass(frozen=True)
class RunSearch:
    """Runs of one project that are wanted. No experiment named means all that are in use.

    Each of the `words` is in the name, the person, a tag or a parameter, or begins the id.
    `columns` are the fields whose values come with each run, None means all. `cursor` goes on
    after a page.
    """

    project_id: str
    experiment_ids: tuple[int, ...] = ()
    conditions: tuple[FilterCondition, ...] = ()
    words: tuple[str, ...] = ()
    order: SortOrder = NEWEST
    stage: Stage = Stage.ACTIVE
    columns: tuple[RunField, ...] | None = ()
    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True)
class RunPage:
    """One page of runs, and where the next one begins."""

    items: Sequence[RunFacts]
    next_cursor: str | None


@dataclass(frozen=True)
class RunGroup:
    """Runs that share a value. None is those without one. `means` are those of finite metrics."""

    value: str | None
    runs: int
    newest_ms: int | None
    means: dict[str, float]


@dataclass(frozen=True)
class FieldListing:
    """Fields in `searched_runs` of the matching runs. `is_complete` if those are all runs."""

    fields: Sequence[RunField]
    searched_runs: int
    is_complete: bool


@dataclass(frozen=True)
class Point:
    """A point of a curve. `value` may be NaN or infinite."""

    step: int
    timestamp_ms: int
    value: float


@dataclass(frozen=True)
class Curve:
    """A metric of a run over time, in order of steps.

    When `total` points are more than fit, of each stretch the lowest and the highest are kept, with
    the first and the last of all, and whatever is not a number.
    """

    run_id: str
    key: str
    total: int
    points: Sequence[Point]


class Tracker(Protocol):
    """Reader of tracked data, scoped to one project. Data of other projects never shows."""

    def experiments(
        self, project_id: str, *, stage: Stage = Stage.ACTIVE, text: str = ""
    ) -> Sequence[ExperimentFacts]:
        """Return the experiments whose name holds `text`, the one used last first."""

    def search(self, requested: RunSearch) -> RunPage:
        """Return a page of runs."""

    def groups(self, requested: RunSearch, by: RunField) -> Sequence[RunGroup]:
        """Return runs by their value of a field, the largest groups first, `limit` at most."""

    def fields(self, requested: RunSearch) -> FieldListing:
        """Return which metrics, parameters and tags runs have, those of most runs first."""

    def run(self, project_id: str, run_id: str) -> RunDetail | None:
        """Return one run, in use or in the trash."""

    def project_of_run(self, run_id: str) -> str | None:
        """Return the id of the project of a run, for callers that then check access to it."""

    def project_of_experiment(self, experiment_id: int) -> str | None:
        """Return the id of the project of an experiment. The caller checks access to it."""

    def runs(self, project_id: str, run_ids: Sequence[str]) -> Sequence[RunFacts]:
        """Return runs in use with all their values, in the order asked for."""

    def with_columns(
        self, runs: Sequence[RunFacts], columns: Sequence[RunField]
    ) -> Sequence[RunFacts]:
        """Return runs that were found before with the values of these fields."""

    def curves(
        self,
        project_id: str,
        run_ids: Sequence[str],
        keys: Sequence[str],
        *,
        most_points: int,
        axis: Axis = "step",
        span: Span | None = None,
    ) -> Sequence[Curve]:
        """Return the curves there are, each of at most about `most_points`.

        `span` limits them to a part of the axis, both ends included.
        """

    def first_values(
        self, project_id: str, run_id: str, key: str, *, count: int
    ) -> Sequence[float]:
        """Return the first values of a metric in the order of steps, `count` at most.

        A step that was logged again counts once, with its last value. A metric that is logged
        without steps has them in the order of time. Values may be NaN or infinite.
        """


class Trash(Protocol):
    """Moves runs and experiments to the trash and restores them, scoped to one project."""

    def add(self, project_id: str, run_ids: Sequence[str], *, at_ms: int) -> list[str]:
        """Move runs to the trash. Returns those that were not there. Unknown ones are left out."""

    def restore(self, project_id: str, run_ids: Sequence[str]) -> list[str]:
        """Restore runs whose experiment is in use. Returns those that were restored."""

    def add_experiment(self, project_id: str, experiment_id: int, *, at_ms: int) -> bool:
        """Move an experiment to the trash with its runs. Returns whether it was in use."""

    def restore_experiment(self, project_id: str, experiment_id: int, *, at_ms: int) -> bool:
        """Restore an experiment and the runs deleted with it. Returns whether it was deleted."""

    def binned(
        self, *, before_ms: int, project_id: str | None = None, limit: int
    ) -> Sequence[tuple[str, str]]:
        """Return runs moved to the trash before a time, as (project id, run id), oldest first."""

    def destroy(self, run_id: str) -> str | None:
        """Delete a run in the trash for good. Returns the location of its artifacts.

        None means that it is no longer in the trash.
        """

    def unknown(self, project_id: str, run_ids: Sequence[str]) -> set[str]:
        """Return those ids that are of no run of the project."""

    def unknown_models(self, project_id: str, model_ids: Sequence[str]) -> set[str]:
        """Return those ids that are of no logged model of the project."""


@dataclass(frozen=True)
class NewRun:
    """A run that is made from outside MLflow. `id` is 32 hex digits. Times in milliseconds.

    `params` give way to those that its script logs: a value of the script replaces one of these.
    """

    id: str
    project_id: str
    experiment: str
    name: str
    user: str
    source: str
    started_ms: int
    tags: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)


class RunWriter(Protocol):
    """Begins and ends runs that the platform creates itself."""

    def exists(self, run_id: str) -> bool:
        """Return whether the run exists."""

    def begin(self, run: NewRun) -> None:
        """Create a run, and create or restore its experiment if needed.

        A run that is there already stays as it is.
        """

    def move(self, project_id: str, run_id: str, experiment_id: int) -> bool:
        """Move a run to another active experiment of the project. Returns whether it did."""

    def resume(self, run_id: str) -> None:
        """Record that a run resumes."""

    def end(self, run_ids: Sequence[str], status: str, *, ended_ms: int) -> int:
        """End runs that do not have this end yet, and return their number."""

    def unended(self, run_ids: Sequence[str]) -> set[str]:
        """Return those runs that still count as running."""


class RunEditor(Protocol):
    """Changes runs that are in use. Ids of other runs are skipped."""

    def tag(
        self, project_id: str, run_ids: Sequence[str], tags: Mapping[str, str | None]
    ) -> list[str]:
        """Set tags, and remove those whose value is None. Returns the changed runs.

        The tag with the name of a run renames it.
        """

    def move(self, project_id: str, run_ids: Sequence[str], experiment_id: int) -> list[str]:
        """Move runs to another experiment in use of the project. Returns the moved runs."""


@dataclass(frozen=True)
class Artifact:
    """A file or folder among artifacts. `path` is relative to those of its run."""

    path: str
    is_folder: bool
    size_bytes: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


class ArtifactStore(Protocol):
    """Artifact store. Paths are checked, below one root, and have no leading slash.

    Every method raises Unavailable when the store is out of order.
    """

    def listed(self, place: str) -> Sequence[Artifact]:
        """Return the content of a folder, with paths relative to it, empty if there is none."""

    def first_listed(self, place: str, *, most: int) -> Sequence[Artifact]:
        """Return at most `most` entries of a folder, in no particular order if it has more."""

    @property
    def has_folders(self) -> bool:
        """Return whether a file and a folder cannot have the same name, unlike in a bucket."""

    def is_folder(self, place: str) -> bool:
        """Return whether there is a folder."""

    def size_of(self, place: str) -> int | None:
        """Return the bytes of a file, None when there is no such file."""

    def read(self, place: str, *, start: int, length: int) -> Iterator[bytes]:
        """Yield `length` bytes of a file from byte `start` on."""

    def remove(self, place: str) -> CleanupResult:
        """Remove a folder with its content. Returns what was removed."""

    def folder_size(self, place: str) -> int:
        """Return the bytes of all files below a folder, 0 if there is none."""

    def changed_at(self, place: str) -> datetime | None:
        """Return the time of the last write below a folder, or None if nothing is there."""
