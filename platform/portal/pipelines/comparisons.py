"""Comparisons of a run with the previous one of the same pipeline: parameters, steps, code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portal.pipelines.models import PipelineRun, StepRun
from slipway.schemas.pipeline_references import as_text
from slipway.schemas.pipelines import PipelineIn
from slipway.schemas.truncation import shorten

_MOST_CHARACTERS = 160


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
    """Differences of a run from `previous`.

    `is_code_equal` is None if either has no snapshot. `jobs` are the ids of the jobs of the first
    step that has one in both, the previous first.
    """

    previous: PipelineRun
    parameters: Sequence[ValueChange]
    added: Sequence[str]
    removed: Sequence[str]
    changed: Sequence[StepChange]
    is_code_equal: bool | None
    commits: ValueChange | None
    jobs: tuple[str, str] | None

    @property
    def is_equal(self) -> bool:
        """True if parameters, steps and code are the same."""
        differences = (self.parameters, self.added, self.removed, self.changed)
        return not any(differences) and self.is_code_equal is not False


def compared_with_previous(run: PipelineRun, steps: Sequence[StepRun]) -> PipelineComparison | None:
    """Compare a run with the one before it of the same name. None for the first run.

    `steps` are those of the run. Needs two queries.
    """
    runs = PipelineRun.objects.filter(project=run.project_id, name=run.name, pk__lt=run.pk)
    runs = runs.select_related("snapshot").defer("snapshot__marks")
    previous = runs.order_by("-pk").first()
    if previous is None:
        return None
    before, after = _steps_of(previous.pipeline), _steps_of(run.pipeline)
    changes = [
        StepChange(name, _changes(before[name], after[name])) for name in after if name in before
    ]
    commits = [str((it.git or {}).get("commit", "")) for it in (previous, run)]
    snapshots = (previous.snapshot, run.snapshot)
    return PipelineComparison(
        previous=previous,
        parameters=_changes(previous.parameters, run.parameters),
        added=[name for name in after if name not in before],
        removed=[name for name in before if name not in after],
        changed=[change for change in changes if change.fields],
        is_code_equal=None if None in snapshots else snapshots[0] == snapshots[1],
        commits=ValueChange("commit", *commits) if all(commits) else None,
        jobs=_jobs_of_both(previous, steps),
    )


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


def _jobs_of_both(previous: PipelineRun, steps: Sequence[StepRun]) -> tuple[str, str] | None:
    jobs = StepRun.objects.filter(run=previous, item__isnull=True, job__isnull=False).order_by()
    before = dict(jobs.values_list("step", "job"))
    return next(
        (
            (before[row.step], row.job_id)
            for row in steps
            if row.item is None and row.job_id is not None and row.step in before
        ),
        None,
    )
