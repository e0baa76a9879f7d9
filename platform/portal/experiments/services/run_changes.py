"""Changes to runs: name, notes, tags, experiment. Each is audited."""

from collections.abc import Mapping, Sequence

from portal.accounts.audit import record
from portal.accounts.models import Project
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.experiments.factories import run_editor, tracker
from portal.experiments.ports import RunDetail, Stage
from portal.experiments.signals import RunsChanged, runs_changed
from slipway.schemas.experiments import RunChange

RUN_NAME = "mlflow.runName"
NOTE = "mlflow.note.content"


def change_run(*, project: Project, run: RunDetail, change: RunChange) -> RunDetail:
    """Change the name, the notes and tags of a run. Raises Conflict for one in the trash."""
    before = run.facts
    tags: dict[str, str | None] = dict(change.tags or {})
    if change.name is not None:
        tags[RUN_NAME] = change.name
    if change.note is not None:
        tags[NOTE] = change.note or None
    tags = {key: value for key, value in tags.items() if before.tags.get(key) != value}
    if tags and not run_editor().tag(project.pk, [before.id], tags):
        raise Conflict(
            "This run is in the trash.",
            code="run_in_trash",
            next_step="Restore it, then change it.",
        )
    if tags:
        _record_and_notify(
            project,
            "run.update",
            [before.id],
            label=before.name,
            before={key: before.tags.get(key, "") for key in tags if key != NOTE},
            after={key: value or "" for key, value in tags.items() if key != NOTE}
            | ({"note": "changed"} if NOTE in tags else {}),
        )
    changed = tracker().run(project.pk, before.id)
    if changed is None:
        raise NotFound
    return changed


def tag_runs(
    *, project: Project, run_ids: Sequence[str], tags: Mapping[str, str | None]
) -> list[str]:
    """Set tags of active runs, and remove those that are None. Returns the changed runs."""
    changed = run_editor().tag(project.pk, run_ids, tags) if tags else []
    _record_and_notify(project, "run.update", changed, after=dict(tags))
    return changed


def move_runs(*, project: Project, run_ids: Sequence[str], experiment_id: int) -> list[str]:
    """Move active runs to another experiment. Returns the moved runs; their artifacts stay.

    Raises InvalidInput unless the experiment is an active one of the project.
    """
    experiments = tracker().experiments(project.pk, stage=Stage.ACTIVE)
    names = {experiment.id: experiment.name for experiment in experiments}
    if experiment_id not in names:
        raise InvalidInput(
            f"This project has no active experiment {experiment_id}.",
            code="no_such_experiment",
            field="experiment",
            next_step="Choose one of the experiments of the project.",
        )
    moved = run_editor().move(project.pk, run_ids, experiment_id)
    _record_and_notify(project, "run.move", moved, after={"experiment": names[experiment_id]})
    return moved


def _record_and_notify(
    project: Project,
    verb: str,
    ids: Sequence[str],
    *,
    label: str = "",
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object],
) -> None:
    if not ids:
        return
    record(
        verb,
        kind="run",
        target=project,
        label=label or (ids[0] if len(ids) == 1 else f"{len(ids)} runs"),
        project=project,
        before=dict(before) if before else None,
        after=dict(after),
    )
    runs_changed.send_on_commit(RunsChanged(project.pk))
