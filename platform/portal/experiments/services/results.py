"""Results of a run: its artifacts by what they are, found with a bounded walk of its folders."""

import json
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from portal.core.text import whole_characters
from portal.experiments.artifact_paths import artifact_path_of
from portal.experiments.factories import artifact_store
from portal.experiments.ports import Artifact, RunDetail
from portal.experiments.results.charts import MOST_BYTES, ChartRefused, name_and_step, parse_chart
from portal.experiments.results.images import FOLDER, RASTER_TYPES, LoggedImage, logged_images
from portal.experiments.services.artifacts import read_artifact
from portal.experiments.services.inspection import inspect_artifacts
from slipway.schemas.names import path_error

Item = TypeVar("Item")
MOST_IMAGES = 20_000
MOST_FILES = 2_000
MOST_FOLDERS = 60
MOST_PICTURES = 60
MOST_EVENT_FILES = 20
MOST_EVENT_BYTES = 32 * 1024**2
MOST_CHARTS = 24
MOST_CHART_STEPS = 100
MOST_CHART_BYTES = 4 * 1024**2
_MOST_TABLES = 50
_MOST_CHECKPOINTS = 200
_TABLES_TAG = "mlflow.loggedArtifacts"
CHARTS = "charts"
_STEP = re.compile(
    r"(?:checkpoint|ckpt|global_step|step|epoch)[-_=.]?(\d{1,12})(?!\d)", re.IGNORECASE
)
_CHECKPOINT_NAME = re.compile(r"checkpoint|ckpt", re.IGNORECASE)
_CHECKPOINT_FILE = re.compile(r"\.(ckpt|pt|pth|bin|safetensors|keras|h5)\Z", re.IGNORECASE)


@dataclass(frozen=True)
class CheckpointFile:
    """A file with saved weights. `step` is the last number that its path has for one."""

    step: int | None
    path: str
    size_bytes: int


@dataclass
class ChartSeries:
    """A chart at one step or several. `left_out` are paths of files too many or too large."""

    name: str
    steps: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass
class RunResults:
    """Artifacts of a run by what they are. `limits` are sentences on what was not looked at."""

    images: dict[str, list[LoggedImage]] = field(default_factory=dict)
    pictures: list[Artifact] = field(default_factory=list)
    tables: list[Artifact] = field(default_factory=list)
    charts: list[Artifact] = field(default_factory=list)
    events: list[Artifact] = field(default_factory=list)
    checkpoints: list[CheckpointFile] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """True if nothing of the run has a display of its own."""
        groups = (self.images, self.pictures, self.tables, self.charts)
        return not any((*groups, self.events, self.checkpoints))


def results_of(*, project_id: str, run: RunDetail) -> RunResults:
    """Return the artifacts of a run by what they are.

    Looks at MOST_FOLDERS folders and MOST_FILES files, and at MOST_IMAGES images of
    `mlflow.log_image`. Raises Unavailable when the store is out of order.
    """
    results = RunResults()
    place = artifact_path_of(project_id, run.artifact_uri)
    if place is None:
        return results
    files = _walk(place, results)
    table_names = tables_tagged(run)
    for file in files:
        ending = file.name.rpartition(".")[2].lower()
        if ".tfevents." in file.name:
            results.events.append(file)
        elif file.path in table_names and ending == "json":
            results.tables.append(file)
        elif file.path.startswith(f"{CHARTS}/") and ending == "json":
            results.charts.append(file)
        elif ending in RASTER_TYPES or ending == "svg":
            results.pictures.append(file)
        elif _CHECKPOINT_FILE.search(file.name) and _CHECKPOINT_NAME.search(file.path):
            results.checkpoints.append(_checkpoint(file))
    results.images = images_of(project_id=project_id, run=run, limits=results.limits)
    results.checkpoints.sort(key=lambda it: (it.step is None, it.step or 0, it.path))
    _cut(results, "pictures", results.pictures, MOST_PICTURES)
    _cut(results, "checkpoints", results.checkpoints, _MOST_CHECKPOINTS)
    _cut(results, "tables", results.tables, _MOST_TABLES)
    return results


def events_of(*, project_id: str, run: RunDetail) -> dict[str, Any]:
    """Return what the event files of a run hold, as `results.event_files` describes it.

    Reads MOST_EVENT_FILES files, of MOST_EVENT_BYTES together. Adds `unread`, a sentence on the
    rest, or nothing. Raises InspectionRefused.
    """
    files = results_of(project_id=project_id, run=run).events
    shown = files[:MOST_EVENT_FILES]
    values = inspect_artifacts(
        project_id=project_id,
        files=[(run, file) for file in shown],
        task="events",
        options={"folders": [file.path.rpartition("/")[0][-200:] for file in shown]},
        most_bytes=MOST_EVENT_BYTES,
    )
    size_bytes = sum(file.size_bytes for file in shown)
    sentences = []
    if len(files) > len(shown):
        sentences.append(f"{len(files) - len(shown):,} more event files are not read.")
    if size_bytes > MOST_EVENT_BYTES:
        sentences.append(f"Only the first {MOST_EVENT_BYTES // 1024**2} MiB of them are read.")
    return values | {"unread": " ".join(sentences)}


def charts_of(*, project_id: str, run: RunDetail, files: Sequence[Artifact]) -> list[ChartSeries]:
    """Return the charts among some files by their name, in order of steps.

    Reads MOST_CHART_BYTES at the most. A chart that is refused is a step with the reason.
    """
    series: dict[str, ChartSeries] = {}
    left = MOST_CHART_BYTES
    for file in sorted(files, key=lambda it: name_and_step(it.path)[1] or 0):
        name, step = name_and_step(file.path)
        if name not in series and len(series) >= MOST_CHARTS:
            continue
        it = series.setdefault(name, ChartSeries(name))
        left -= file.size_bytes
        if left < 0 or file.size_bytes > MOST_BYTES or len(it.steps) >= MOST_CHART_STEPS:
            it.left_out.append(file.path)
            continue
        pieces = read_artifact(
            project_id=project_id, run=run, artifact=file, length=file.size_bytes
        )
        try:
            it.steps.append(parse_chart(b"".join(pieces)) | {"step": step})
        except ChartRefused as refused:
            it.faults.append(f"{file.path}: {refused}")
    return sorted(series.values(), key=lambda it: it.name)


def images_of(
    *, project_id: str, run: RunDetail, limits: list[str] | None = None
) -> dict[str, list[LoggedImage]]:
    """Return the images of `mlflow.log_image` by key. Adds to `limits` if there are too many."""
    place = artifact_path_of(project_id, run.artifact_uri)
    if place is None:
        return {}
    listing = artifact_store().first_listed(f"{place}/{FOLDER}", most=MOST_IMAGES)
    if limits is not None and len(listing) == MOST_IMAGES:
        limits.append(f"The run has more than {MOST_IMAGES:,} files of images; some are left out.")
    return logged_images(f"{FOLDER}/{it.path}" for it in listing if _is_named(it))


def _walk(place: str, results: RunResults) -> list[Artifact]:
    """Return the files of a run, folder by folder, without those of `images`."""
    folders, files = deque([""]), list[Artifact]()
    for _ in range(MOST_FOLDERS):
        if not folders or len(files) >= MOST_FILES:
            break
        inside = folders.popleft()
        listing = artifact_store().first_listed(
            f"{place}/{inside}".rstrip("/"), most=MOST_FILES - len(files) + 1
        )
        for entry in filter(_is_named, listing):
            entry = replace(entry, path=f"{inside}/{entry.path}".lstrip("/"))
            if not entry.is_folder:
                files.append(entry)
            elif entry.path not in (FOLDER, "table_images"):
                folders.append(entry.path)
    if folders or len(files) > MOST_FILES:
        results.limits.append(
            f"The run has many artifacts: only {min(len(files), MOST_FILES):,} files were looked "
            "at for this section. All of them are below."
        )
    return files[:MOST_FILES]


def _is_named(entry: Artifact) -> bool:
    """Return whether an address can name the entry."""
    return entry.path == whole_characters(entry.path) and path_error(entry.path) is None


def tables_tagged(run: RunDetail) -> frozenset[str]:
    """Return the paths that `mlflow.log_table` has written into a tag of the run."""
    try:
        entries = json.loads(run.facts.tags.get(_TABLES_TAG, "[]"))
        return frozenset(str(it["path"]) for it in entries if it.get("type") == "table")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return frozenset()


def _checkpoint(file: Artifact) -> CheckpointFile:
    steps = _STEP.findall(file.path)
    return CheckpointFile(int(steps[-1]) if steps else None, file.path, file.size_bytes)


def _cut(results: RunResults, noun: str, items: list[Item], most: int) -> None:
    if len(items) > most:
        results.limits.append(f"{len(items) - most:,} more {noun} are among the artifacts below.")
        del items[most:]


def evenly(items: Sequence[Item], most: int) -> Sequence[Item]:
    """Return at most `most` of the items, evenly spread, the first and last among them."""
    if len(items) <= most:
        return items
    return [items[round(at * (len(items) - 1) / (most - 1))] for at in range(most)]
