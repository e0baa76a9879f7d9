"""Records baselines automatically, from logged samples or from the dataset version of a run."""

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
from django.db import IntegrityError, transaction
from django.db.models import Q

from portal.accounts.models import Project
from portal.core import clock
from portal.core.errors import SlipwayError
from portal.datasets.bytes import content_of, entries_of
from portal.datasets.models import Version
from portal.datasets.services.uses import read_by
from portal.datasets.tables import tables_in
from portal.endpoints.models import Revision
from portal.experiments.models import Input, LoggedDataset, Run, Tag
from portal.experiments.services.job_runs import JOB_TAG
from portal.monitoring.analyst import AnalysisFailed, Analyst
from portal.monitoring.models import BaselineRecord, CapturedHour
from portal.registry.adapters.artifacts import artifact_files
from portal.registry.artifact_uri import folder_of
from portal.registry.catalog import VersionFacts, find_version
from portal.registry.mlmodel import MAX_BYTES, BadModelFile, read_mlmodel
from portal.registry.model_inspection import examine
from portal.registry.models import VersionRecord
from portal.registry.ports import FilesUnreadable
from portal.registry.services.actors import Actor
from portal.registry.services.evaluations import golden_of, record_golden
from portal.registry.tasks import hash_version
from portal.workloads.models import Workload
from slipway.mlflow_golden import golden_file_of
from slipway.schemas.registry import GoldenIn

log = structlog.get_logger(__name__)
LOGGED, DATASET, FIRST = "logged", "dataset", "first_predictions"
SAMPLES_FOLDER = "slipway/data"
_MOST_BYTES = 256 * 1024**2
_PER_PASS = 5
_LOOKS = 12
# A client that registers with `log_model` computes golden predictions afterwards.
_LOOKS_FOR_GOLDEN = 4
_MOST_GOLDEN_BYTES = 8 * 1024**2
_UUID = re.compile(r"[A-Za-z0-9-]{1,64}")
_MOST_NAMED = 3
_MOST_SAMPLES = 4


def record_baselines(analyst: Analyst) -> int:
    """Look for baselines of versions that have none yet. Returns the number recorded."""
    known = BaselineRecord.objects.exclude(record=None).values("record")
    fresh = VersionRecord.objects.exclude(pk__in=known)
    for record in fresh.order_by("pk")[: 10 * _PER_PASS]:
        BaselineRecord.objects.get_or_create(record=record)
    open_ones = Q(source="", looks__lt=_LOOKS) | Q(source=LOGGED, looks__lt=_LOOKS_FOR_GOLDEN)
    due = BaselineRecord.objects.filter(
        open_ones, next_look_at__lte=clock.now(), record__isnull=False
    ).select_related("record__line__project", "record__author")
    return sum(
        _record_baseline(analyst, baseline_record)
        for baseline_record in due.order_by("next_look_at")[:_PER_PASS]
    )


def _record_baseline(analyst: Analyst, row: BaselineRecord) -> bool:
    record = row.record
    assert record is not None  # noqa: S101 - filtered above
    pause = timedelta(seconds=15 * 2**row.looks)
    BaselineRecord.objects.filter(pk=row.pk).update(
        looks=row.looks + 1, next_look_at=clock.now() + pause
    )
    project = record.line.project
    try:
        version = find_version(project.pk, record.line.name, record.number)
        record = examine(record, version, later=hash_version)
        value = None if row.source else _find_baseline(analyst, project, record, version)
        golden = value[2].get("golden") if value is not None else None
        if golden is None and golden_of(record) is None:
            golden = _predicted_by_client(project, version)
    except (AnalysisFailed, FilesUnreadable, SlipwayError, OSError) as error:
        log.info("no_baseline", version=record.pk, reason=str(error)[:200])
        return False
    if value is not None:
        _store_baseline(row, project, record, value)
    if golden is not None:
        _prove(project, record, golden)
    return value is not None


def _store_baseline(
    row: BaselineRecord,
    project: Project,
    record: VersionRecord,
    items: tuple[str, str, dict[str, Any]],
) -> None:
    source, words, result = items
    BaselineRecord.objects.filter(pk=row.pk).update(
        source=source,
        words=words,
        rows=result["rows"],
        features=result["features"],
        calibration=result.get("calibration"),
    )
    _mark_hours_stale(project, record)


def _mark_hours_stale(project: Project, record: VersionRecord) -> None:
    """Mark hours as stale that were summarized before there was a baseline."""
    serving = Revision.objects.filter(
        endpoint__project=project, model=record.line.name, model_version=str(record.number)
    )
    hours = CapturedHour.objects.filter(endpoint__in=serving.values("endpoint"))
    hours.update(is_stale=True)


def _find_baseline(
    analyst: Analyst, project: Project, record: VersionRecord, details: VersionFacts
) -> tuple[str, str, dict[str, Any]] | None:
    columns = input_columns(record.signature)
    if not details.run_id:
        return None
    run = Run.objects.in_projects([project.pk]).filter(run_uuid=details.run_id).first()
    if run is None:
        return None
    with tempfile.TemporaryDirectory(dir=analyst.folder) as folder:
        tensors = bool(record.signature) and not columns
        for sample in _samples(project, run, Path(folder)):
            result = analyst.request(
                "profile_sample", path=str(sample), columns=columns, tensors=tensors
            )
            if result is not None:
                return LOGGED, f"{result['rows']:,} rows that the run logged.", result
        if tensors:
            return None  # it is unknown which columns of a table became the tensors
        for version in _read_by(run):
            result = _baseline_of_version(analyst, version, columns, Path(folder))
            if result is not None:
                return DATASET, f"{result['rows']:,} rows of {version.reference}.", result
    return None


def input_columns(signature: Any) -> list[str]:
    """Return the names of a table's columns, or nothing for tensors."""
    inputs = (signature or {}).get("inputs") or []
    if any(item.get("shape") is not None or not item.get("name") for item in inputs):
        return []
    return [item["name"] for item in inputs]


def _samples(project: Project, run: Run, folder: Path) -> Iterator[Path]:
    """Copy the samples logged to the run, those of `slipway.track.data` and of training first."""
    store = artifact_files()
    place = folder_of(project.pk, f"{(run.artifact_uri or '').rstrip('/')}/{SAMPLES_FOLDER}")
    paths = [
        model_folder_file.path
        for model_folder_file in store.files(place, limit=50)
        if model_folder_file.path.endswith(".json")
    ]
    paths.sort(key=lambda path: ("mlflow-" in path.rpartition("/")[2], "train" not in path, path))
    for path in paths[:_MOST_SAMPLES]:
        copied = _copy(store.pieces(place, path), folder / "sample.json")
        if copied is not None:
            yield copied


def _predicted_by_client(project: Project, details: VersionFacts) -> dict[str, Any] | None:
    """Return the golden predictions that the SDK logged with an MLflow model."""
    run = Run.objects.in_projects([project.pk]).filter(run_uuid=details.run_id or "").first()
    if run is None:
        return None
    store = artifact_files()
    try:
        head = store.head(folder_of(project.pk, details.location), "MLmodel", limit_bytes=MAX_BYTES)
        uuid = read_mlmodel(head).uuid
        if not _UUID.fullmatch(uuid):
            return None
        folder, _, name = golden_file_of(uuid).rpartition("/")
        place = folder_of(project.pk, f"{(run.artifact_uri or '').rstrip('/')}/{folder}")
        text = store.head(place, name, limit_bytes=_MOST_GOLDEN_BYTES)
        return GoldenIn.model_validate_json(text).model_dump()
    except (FilesUnreadable, BadModelFile, ValueError):
        return None  # no MLflow model, or one without golden predictions


def _copy(pieces: Iterable[bytes], target: Path) -> Path | None:
    written = 0
    with target.open("wb") as file:
        for piece in pieces:
            written += len(piece)
            if written > _MOST_BYTES:
                return None
            file.write(piece)
    return target


def _read_by(run: Run) -> Sequence[Version]:
    versions = list(read_by(run_id=run.run_uuid))
    job = Tag.objects.filter(run=run, key=JOB_TAG).values_list("value", flat=True).first()
    workload = Workload.objects.filter(pk=job).first() if job else None
    return versions or (list(read_by(workload=workload)) if workload else [])


def _baseline_of_version(
    analyst: Analyst, version: Version, columns: list[str], folder: Path
) -> dict[str, Any] | None:
    for group in tables_in(version).groups:
        paths, names = [], []
        for at, path in enumerate(group.paths[:20]):
            copied = _copy(content_of(entries_of(version, path)), folder / f"part-{at}")
            if copied is not None:
                paths.append(str(copied))
                names.append(path)
        table = version.tables.filter(name=group.name).first()
        try:
            result: dict[str, Any] = analyst.request(
                "profile_table",
                paths=paths,
                names=names,
                format=group.format,
                columns=columns,
                schema=table.schema if table else {},
            )
        except AnalysisFailed:
            continue  # another table of the version may be the one
        return result
    return None


def _prove(project: Project, record: VersionRecord, golden: dict[str, Any]) -> None:
    """Record golden predictions from the sample of the run, unless there are some."""
    if record.author is None or golden_of(record) is not None:
        return
    try:
        record_golden(
            project=project,
            model=record.line.name,
            number=record.number,
            golden=GoldenIn.model_validate(golden),
            by=Actor(user=record.author),
        )
    except (SlipwayError, ValueError) as error:
        log.info("no_golden_predictions", version=record.pk, reason=str(error)[:200])


def record_first(
    analyst: Analyst, *, revision_id: str, paths: Sequence[str], enough: int
) -> BaselineRecord | None:
    """Create the baseline of a revision from its own first predictions, once there are enough."""
    result = analyst.request(
        "profile_first", paths=list(paths), revision=revision_id, enough=enough
    )
    if result is None:
        return None
    words = (
        f"The first {result['rows']:,} rows it predicted, because "
        f"{_missing_rows_reason(revision_id)}: problems that existed from the start are not "
        "detected. Log rows with slipway.track.data in the run of the next version."
    )
    try:
        with transaction.atomic():
            return BaselineRecord.objects.create(
                revision_id=revision_id,
                source=FIRST,
                words=words,
                rows=result["rows"],
                features=result["features"],
            )
    except IntegrityError:
        return BaselineRecord.objects.filter(revision_id=revision_id).first()


def _missing_rows_reason(revision_id: str) -> str:
    """Return the reason for missing training data: MLflow's inputs are columns, not rows."""
    unknown = "its training data is unknown"
    revision = Revision.objects.select_related("endpoint").filter(pk=revision_id).first()
    if revision is None:
        return unknown
    project_id = revision.endpoint.project_id
    try:
        version = find_version(project_id, revision.model, int(revision.model_version))
    except (SlipwayError, ValueError):
        return unknown
    read = Input.objects.filter(
        source_type="DATASET", destination_type="RUN", destination_id=version.run_id
    )
    logged = LoggedDataset.objects.filter(
        dataset_uuid__in=read.values("source_id"), experiment__workspace=project_id
    )
    names = list(logged.order_by("name").values_list("name", flat=True)[:_MOST_NAMED])
    if not names:
        return unknown
    return f"MLflow stores the columns of {', '.join(names)[:200]} but none of the rows"
