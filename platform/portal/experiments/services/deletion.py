"""Deleting with undo, and deleting for good.

Runs go to the trash first, stay there for `KEPT_DAYS` and can be restored. Destroying removes
the rows, then the bytes: a crash between the two leaves bytes that no run knows, and the scan for
orphans finds them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from portal.accounts.audit import record
from portal.accounts.models import Project
from portal.core import clock
from portal.core.errors import NotFound
from portal.experiments.artifact_paths import artifact_path_of
from portal.experiments.factories import artifact_store, run_trash
from portal.experiments.services.artifact_usage import measure
from portal.experiments.signals import RunsChanged, runs_changed
from portal.storage.ports import CleanupResult

KEPT_DAYS = 30
MOST_AT_ONCE = 1_000
# Artifacts are written after their run is created, so a younger folder is skipped.
YOUNGEST = timedelta(hours=1)


@dataclass(frozen=True)
class DeletionResult:
    """Counts of runs, files and bytes that were deleted for good."""

    runs: int
    files: int
    size_bytes: int


def delete_runs(*, project: Project, run_ids: Sequence[str]) -> list[str]:
    """Move runs to the trash. Returns those that were in use. `restore_runs` undoes it."""
    result = run_trash().add(project.pk, run_ids, at_ms=_ms(clock.now()))
    _record_and_notify(project, "run.delete", result)
    return result


def restore_runs(*, project: Project, run_ids: Sequence[str]) -> list[str]:
    """Restore runs from the trash. Those whose experiment is in the trash stay there."""
    result = run_trash().restore(project.pk, run_ids)
    _record_and_notify(project, "run.restore", result)
    return result


def delete_experiment(*, project: Project, experiment_id: int) -> None:
    """Move an experiment to the trash with its runs. Raises NotFound."""
    if not run_trash().add_experiment(project.pk, experiment_id, at_ms=_ms(clock.now())):
        raise NotFound
    _record_and_notify(project, "experiment.delete", [str(experiment_id)])


def restore_experiment(*, project: Project, experiment_id: int) -> None:
    """Restore an experiment with the runs deleted with it. Raises NotFound."""
    if not run_trash().restore_experiment(project.pk, experiment_id, at_ms=_ms(clock.now())):
        raise NotFound
    _record_and_notify(project, "experiment.restore", [str(experiment_id)])


def empty_trash(*, project: Project) -> DeletionResult:
    """Empty the project's trash and remove orphaned artifacts. Returns how much was freed."""
    destroyed = _destroy(before=clock.now(), project_id=project.pk)
    freed = free_orphans(project_id=project.pk)
    total = DeletionResult(
        destroyed.runs, destroyed.files + freed.count, destroyed.size_bytes + freed.size_bytes
    )
    measure(project_id=project.pk)
    _record_and_notify(
        project, "run.destroy", [], after={"runs": total.runs, "bytes": total.size_bytes}
    )
    return total


def destroy_overdue() -> DeletionResult:
    """Destroy what has been in any trash for longer than KEPT_DAYS. Idempotent."""
    return _destroy(before=clock.now() - timedelta(days=KEPT_DAYS), project_id=None)


def _destroy(*, before: datetime, project_id: str | None) -> DeletionResult:
    removed, cleared = 0, CleanupResult()
    while True:
        due = run_trash().binned(before_ms=_ms(before), project_id=project_id, limit=MOST_AT_ONCE)
        for owner, run_id in due:
            uri = run_trash().destroy(run_id)
            if uri is None:
                continue
            removed += 1
            place = artifact_path_of(owner, uri)
            if place is not None:
                # The run's folder only contains its artifacts.
                cleared += artifact_store().remove(place.removesuffix("/artifacts"))
        if len(due) < MOST_AT_ONCE:
            return DeletionResult(removed, cleared.count, cleared.size_bytes)


def free_orphans(*, project_id: str) -> CleanupResult:
    """Remove a project's artifacts without a run or logged model. Returns how much was freed."""
    store, freed = artifact_store(), CleanupResult()
    root = f"workspaces/{project_id}"
    for experiment in store.listed(root):
        if not experiment.is_folder or not experiment.name.isdigit():
            continue
        place = f"{root}/{experiment.path}"
        runs = [it.path for it in store.listed(place) if it.is_folder and _is_run(it.path)]
        for run_id in sorted(run_trash().unknown(project_id, runs)):
            freed += _free(f"{place}/{run_id}")
        models = [it.path for it in store.listed(f"{place}/models") if it.is_folder]
        for model_id in sorted(run_trash().unknown_models(project_id, models)):
            freed += _free(f"{place}/models/{model_id}")
    return freed


def _free(place: str) -> CleanupResult:
    changed = artifact_store().changed_at(place)
    if changed is not None and clock.now() - changed < YOUNGEST:
        return CleanupResult()
    return artifact_store().remove(place)


def _is_run(name: str) -> bool:
    return len(name) == 32 and all(c in "0123456789abcdef" for c in name)


def _record_and_notify(
    project: Project, verb: str, ids: Sequence[str], after: dict[str, object] | None = None
) -> None:
    """Record the action in the audit log, and notify open pages."""
    if not ids and after is None:
        return
    label = ids[0] if len(ids) == 1 else f"{len(ids)} runs" if ids else project.name
    kind = verb.partition(".")[0]
    record(verb, target=project, label=label, kind=kind, project=project, after=after)
    runs_changed.send_on_commit(RunsChanged(project.pk))


def _ms(timestamp: datetime) -> int:
    return int(timestamp.timestamp() * 1000)
