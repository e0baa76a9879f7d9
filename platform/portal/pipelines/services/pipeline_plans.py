"""Plans of runs: what would be reused, and what the rest would cost. Nothing is started."""

from typing import Any

from portal.accounts.models import Project, User
from portal.batch_predictions.services.submission import SettledPrediction
from portal.core.errors import InvalidInput
from portal.pipelines.models import PipelineRun, StepRun
from portal.pipelines.services.pipeline_starts import SettledRun, checked_run
from portal.pipelines.services.step_outputs import may_reuse, reusable
from portal.pipelines.services.step_predictions import checked_prediction, quote_step
from portal.pipelines.step_requests import (
    Lookup,
    NoValue,
    digest_of,
    lookup_in,
    lookup_of_parameters,
    resolved_job,
    resolved_sweep,
)
from portal.spend.presenters import with_cost
from portal.sweeps.services.quotes import quote_trials
from portal.sweeps.services.sweeps import trials_of
from portal.training.services.jobs import admission_request, quote_job
from slipway.schemas.pipeline_checks import dependencies, items_fault, ordered, outputs_of
from slipway.schemas.pipeline_references import as_text, parse_condition, substitute
from slipway.schemas.pipelines import (
    PipelinePlan,
    PipelineRunIn,
    PlannedStep,
    StepIn,
    StepState,
)
from slipway.schemas.sweeps import SweepQuote
from slipway.schemas.training import JobIn, Quote

# Kinds without a job of their own. A sweep has a quote of another shape.
_WITHOUT_QUOTE = frozenset({"sweep", "register", "promote", "approval"})


def plan_run(*, project: Project, by: User, requested: PipelineRunIn) -> PipelinePlan:
    """Return what a run would do. Raises InvalidInput as its start does."""
    planner = _Planner(project, by, requested)
    steps = [planner.planned(step) for step in ordered(requested.pipeline)]
    to_run = [step for step in steps if step.action in ("run", "depends")]
    priced = {step.name for step in requested.pipeline.steps if step.has_cost}
    costs = [_expected(step) for step in to_run if step.step in priced]
    return PipelinePlan(
        steps=steps,
        reused=sum(step.action == "reuse" for step in steps),
        to_run=sum(step.action in ("run", "depends", "wait") for step in steps),
        nano_usd_per_hour=sum(
            quote.nano_usd_per_hour * (step.items or 1)
            for step in to_run
            if (quote := step.quote or step.sweep_quote) is not None
        ),
        expected_nano_usd=None
        if None in costs
        else sum(cost for cost in costs if cost is not None),
    )


def _expected(step: PlannedStep) -> int | None:
    """Return the expected cost of a step that is done, None without history."""
    cost = None
    if step.sweep_quote is not None:
        cost = step.sweep_quote.expected_nano_usd
    elif step.quote is not None and step.quote.expected is not None:
        cost = step.quote.expected.nano_usd
    return None if cost is None else cost * (step.items or 1)


class _Planner:
    """Walks through the steps in order, with the outputs that earlier runs have left."""

    def __init__(self, project: Project, by: User, requested: PipelineRunIn) -> None:
        self._project, self._by = project, by
        self._settled: SettledRun = checked_run(project=project, by=by, requested=requested)
        self._run = PipelineRun(
            project=project,
            owner=by,
            spec={},
            parameters=self._settled.parameters,
            force=requested.force,
        )
        self._rows: dict[str, StepRun] = {}
        self._unknown: set[str] = set()
        self._pipeline = requested.pipeline
        self._predictions: dict[str, SettledPrediction] = {}

    def planned(self, step: StepIn) -> PlannedStep:
        """Return what would happen to a step. Those before it were planned already."""
        row = StepRun(run=self._run, step=step.name, kind=step.kind)
        self._rows[step.name] = row
        action, explanation, changes = self._action(step, row)
        if action in ("run", "depends", "wait"):
            self._unknown.add(step.name)
        elif action == "skip":
            row.state = StepState.SKIPPED
        is_done = action in ("run", "depends")
        return PlannedStep(
            step=step.name,
            kind=step.kind,
            action=action,
            explanation=explanation,
            quote=self._quote(step) if step.kind not in _WITHOUT_QUOTE and is_done else None,
            sweep_quote=self._sweep_quote(step) if step.kind == "sweep" and is_done else None,
            **changes,
        )

    def _action(self, step: StepIn, row: StepRun) -> tuple[Any, str, dict[str, Any]]:
        if step.run_on == "failure":
            return "skip", "Only if a step before it fails.", {}
        before = list(dependencies(step))
        if step.run_on == "success":
            skipped = [name for name in before if self._rows[name].status == StepState.SKIPPED]
            if skipped:
                return "skip", f"Step {skipped[0]} is skipped.", {}
        try:
            return self._known_action(step, row)
        except (NoValue, TypeError):
            names = [name for name in before if name in self._unknown]
            return "depends", f"It depends on {', '.join(names) or 'values of the run'}.", {}

    def _known_action(self, step: StepIn, row: StepRun) -> tuple[Any, str, dict[str, Any]]:
        lookup = lookup_in(self._run, self._rows)
        if step.when is not None and not parse_condition(step.when, "when").holds(lookup):
            return "skip", f"Its condition does not hold: {step.when}", {}
        if step.kind == "approval":
            return "wait", f"Waits for a person with the role {step.approvers}.", {}
        if step.foreach is not None:
            return self._fan_out(step, row)
        earlier = self._earlier(step, None)
        if earlier is None:
            text = "No run has done this." if may_reuse(self._run, step) else "It is never reused."
            return "run", "Nothing is reused." if self._run.force else text, {}
        row.state, row.outputs = StepState.REUSED, earlier.outputs
        return "reuse", "Same code, inputs and environment.", {"reused_from": earlier.run_id}

    def _fan_out(self, step: StepIn, row: StepRun) -> tuple[Any, str, dict[str, Any]]:
        items = substitute(step.foreach, lookup_in(self._run, self._rows))
        if fault := items_fault(items):
            return "run", f"It would fail: the list of its items {fault}.", {}
        earlier = [self._earlier(step, item) for item in items]
        rest = earlier.count(None)
        if rest:
            return "run", f"{len(items) - rest} of {len(items)} items are reused.", {"items": rest}
        row.state = StepState.REUSED
        row.outputs = {
            name: [it.outputs[name] for it in earlier if it is not None]
            for name in outputs_of(step)
        }
        return "reuse", f"All {len(items)} items are reused.", {"items": len(items)}

    def _earlier(self, step: StepIn, item: Any) -> StepRun | None:
        lookup = lookup_in(self._run, self._rows, item)
        if step.is_job:
            digest = digest_of(step, resolved_job(self._settled.jobs[step.name], step, lookup))
        elif step.kind == "predict":
            digest = self._prediction_digest(step, lookup)
        elif step.kind == "sweep":
            digest = digest_of(step, resolved_sweep(self._settled.jobs[step.name], step, lookup))
        else:
            fields = {
                name: as_text(substitute(getattr(step, name), lookup))
                for name in ("model", "source")
            }
            digest = digest_of(step, fields)
        return reusable(self._run, step, digest) if may_reuse(self._run, step) else None

    def _prediction_digest(self, step: StepIn, lookup: Lookup) -> str:
        try:
            _, settled, digest = checked_prediction(self._project, self._pipeline, step, lookup)
        except InvalidInput:
            if dependencies(step):  # a step before it may register the model or push the data
                raise NoValue(step.name) from None
            raise
        self._predictions[step.name] = settled
        return digest

    def _quote(self, step: StepIn) -> Quote:
        if step.kind == "predict":
            settled = self._predictions.get(step.name)
            return quote_step(self._project, self._by, step, settled)
        job = self._settled.jobs[step.name]
        request = admission_request(project=self._project, by=self._by, spec=job)
        return with_cost(quote_job(project=self._project, spec=job), request)

    def _sweep_quote(self, step: StepIn) -> SweepQuote | None:
        """Return the cost of a sweep, None if the number of its trials is not known."""
        job: JobIn = self._settled.jobs[step.name]
        lookup = lookup_of_parameters(self._settled.parameters)
        try:
            trials = trials_of(resolved_sweep(job, step, lookup))
        except NoValue:
            try:
                trials = int(substitute(step.trials, lookup))
            except (NoValue, ValueError, TypeError):
                return None
        return quote_trials(
            project=self._project, by=self._by, job=job, trials=trials, parallel=step.parallel
        )
