"""Comparisons of two runs of one pipeline: parameters, steps, code, outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from portal.core.errors import NotFound
from portal.pipelines.models import PipelineRun, StepRun
from slipway.sanitize import visible
from slipway.schemas.pipeline_references import as_text
from slipway.schemas.pipelines import PipelineIn
from slipway.schemas.truncation import shorten

_MOST_CHARACTERS = 160
_MOST_OTHERS = 50


@dataclass(frozen=True)
class ValueChange:
    """A value before and after. None if that run does not have it."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class StepChange:
    """A step that both runs have, with the fields that differ."""

    name: str
    fields: Sequence[ValueChange]


@dataclass(frozen=True)
class PipelineComparison:
    """Differences of a run from `other`.

    `outputs` are values of steps, without files, which are never equal. `is_code_equal` is None if
    either has no snapshot. `jobs` are the ids of the jobs of the first step that has one in both,
    that of `other` first.
    """

    other: PipelineRun
    parameters: Sequence[ValueChange]
    added: Sequence[str]
    removed: Sequence[str]
    changed: Sequence[StepChange]
    outputs: Sequence[StepChange]
    is_code_equal: bool | None
    commits: ValueChange | None
    jobs: tuple[str, str] | None

    @property
    def is_equal(self) -> bool:
        """True if parameters, steps and code are the same."""
        differences = (self.parameters, self.added, self.removed, self.changed)
        return not any(differences) and self.is_code_equal is not False


def other_runs(run: PipelineRun) -> list[PipelineRun]:
    """Return the runs that a run may be compared with: the newest of its name."""
    runs = _runs_like(run).defer("spec", "parameters", "git")
    return list(runs.order_by("-pk")[:_MOST_OTHERS])


def compared_with(
    run: PipelineRun, steps: Sequence[StepRun], other: str = ""
) -> PipelineComparison | None:
    """Compare a run with another one of its name, by default with the one before it.

    None if there is none. `steps` are those of the run. Needs two queries. Raises NotFound.
    """
    runs = _runs_like(run).select_related("snapshot").defer("snapshot__marks")
    if other:
        base = runs.filter(pk=other).first()
        if base is None:
            raise NotFound(f"The pipeline {run.name} has no run {visible(other)}.")
    else:
        base = runs.filter(pk__lt=run.pk).order_by("-pk").first()
    return None if base is None else _comparison(base, run, steps)


def _runs_like(run: PipelineRun) -> QuerySet[PipelineRun]:
    return PipelineRun.objects.filter(project=run.project_id, name=run.name).exclude(pk=run.pk)


def _comparison(
    other: PipelineRun, run: PipelineRun, steps: Sequence[StepRun]
) -> PipelineComparison:
    before, after = _steps_of(other.pipeline), _steps_of(run.pipeline)
    changes = [
        StepChange(name, _changes(before[name], after[name])) for name in after if name in before
    ]
    commits = [str((it.git or {}).get("commit", "")) for it in (other, run)]
    snapshots = (other.snapshot, run.snapshot)
    earlier = {step.step: step for step in StepRun.objects.filter(run=other, item__isnull=True)}
    return PipelineComparison(
        other=other,
        parameters=_changes(other.parameters, run.parameters),
        added=[name for name in after if name not in before],
        removed=[name for name in before if name not in after],
        changed=[change for change in changes if change.fields],
        outputs=_changed_outputs(earlier, steps),
        is_code_equal=None if None in snapshots else snapshots[0] == snapshots[1],
        commits=ValueChange("commit", *commits) if all(commits) else None,
        jobs=_jobs_of_both(earlier, steps),
    )


def _changed_outputs(earlier: Mapping[str, StepRun], steps: Sequence[StepRun]) -> list[StepChange]:
    changes = [
        StepChange(step.step, _changes(_values(earlier[step.step]), _values(step)))
        for step in steps
        if step.item is None and step.step in earlier and step.outputs
    ]
    return [change for change in changes if change.fields]


def _values(step: StepRun) -> dict[str, Any]:
    """Return outputs without files and ids, which name their run."""
    ids = {"sweep": ("best_job", "best_run"), "notebook": ("run",)}.get(step.kind, ())
    return {
        name: value
        for name, value in (step.outputs or {}).items()
        if name not in ids and not any(str(part).startswith("runs:/") for part in _parts(value))
    }


def _parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _steps_of(pipeline: PipelineIn) -> dict[str, dict[str, Any]]:
    return {step.name: step.model_dump(mode="json") for step in pipeline.steps}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[ValueChange]:
    names = dict.fromkeys([*before, *after])
    return [
        ValueChange(name, _text(before, name), _text(after, name))
        for name in names
        if (name in before) != (name in after) or before.get(name) != after.get(name)
    ]


def _text(values: Mapping[str, Any], name: str) -> str | None:
    if name not in values:
        return None
    value = values[name]
    return "none" if value is None else shorten(as_text(value), _MOST_CHARACTERS)


def _jobs_of_both(
    earlier: Mapping[str, StepRun], steps: Sequence[StepRun]
) -> tuple[str, str] | None:
    for step in steps:
        before = earlier.get(step.step)
        if step.item is None and step.job_id and before is not None and before.job_id:
            return before.job_id, step.job_id
    return None
