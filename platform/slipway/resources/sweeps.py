"""Sweeps: searches for the parameters with which a script does best."""

import time
from collections.abc import Mapping, Sequence

from slipway.connection import Connection
from slipway.errors import InvalidInput
from slipway.pages import Pages
from slipway.parameter_spaces import parse_constraint, parse_metric, parse_space
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.sweeps import (
    Constraint,
    FrontOut,
    Metric,
    ParameterSpace,
    RepeatIn,
    RepeatsOut,
    SweepExtension,
    SweepIn,
    SweepOut,
    SweepQuote,
    TrialOut,
)
from slipway.schemas.training import JobIn

_FIRST_LOOK_S, _LATER_LOOKS_S = 0.2, 3.0


class Sweeps:
    """The sweeps of a project. `sweep` is the id of one.

    GET, POST projects/{project}/sweeps · POST sweeps/quote · GET sweeps/{sweep}, …/trials,
    …/front, …/repeats · POST …/pause, resume, extend, stop, repeats
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str, search: str | None = None) -> Pages[SweepOut]:
        """List sweeps whose name contains `search`, newest first."""
        segments = ("projects", project, "sweeps")
        return Pages(self._connection, segments, PageOf[SweepOut], {"q": search})

    def get(self, sweep: str, *, project: str) -> SweepOut:
        """Return one sweep, with its best trial and its cost so far."""
        return self._connection.fetch(SweepOut, "GET", *_path(project, sweep))

    def trials(self, sweep: str, *, project: str) -> Pages[TrialOut]:
        """List the trials of a sweep, newest first."""
        segments = (*_path(project, sweep), "trials")
        return Pages(self._connection, segments, PageOf[TrialOut])

    def front(self, sweep: str, *, project: str) -> FrontOut:
        """Return the Pareto front of a sweep with several metrics."""
        return self._connection.fetch(FrontOut, "GET", *_path(project, sweep), "front")

    def start(self, body: SweepIn, *, project: str) -> SweepOut:
        """Start a sweep. See `sweep_body`. Raises InvalidInput for what can never run."""
        return self._connection.fetch(SweepOut, "POST", "projects", project, "sweeps", body=body)

    def quote(self, body: SweepIn, *, project: str) -> SweepQuote:
        """Return the price of a sweep. Nothing is started."""
        segments = ("projects", project, "sweeps", "quote")
        return self._connection.fetch(SweepQuote, "POST", *segments, body=body)

    def pause(self, sweep: str, *, project: str) -> SweepOut:
        """Start no further trials until the sweep is resumed. Running trials go on."""
        return self._connection.fetch(SweepOut, "POST", *_path(project, sweep), "pause")

    def resume(self, sweep: str, *, project: str) -> SweepOut:
        """Go on with a paused sweep, and with those of its jobs that a budget has stopped."""
        return self._connection.fetch(SweepOut, "POST", *_path(project, sweep), "resume")

    def extend(self, sweep: str, trials: int, *, project: str) -> SweepOut:
        """Let a sweep start more trials, `trials` in all. A finished one runs again."""
        body = build(SweepExtension, trials=trials)
        segments = (*_path(project, sweep), "extend")
        return self._connection.fetch(SweepOut, "POST", *segments, body=body)

    def stop(self, sweep: str, *, project: str) -> SweepOut:
        """End a sweep for good, and stop its jobs."""
        return self._connection.fetch(SweepOut, "POST", *_path(project, sweep), "stop")

    def repeats(self, sweep: str, *, project: str) -> RepeatsOut:
        """Return the trials that ran again with other seeds, with mean and deviation."""
        return self._connection.fetch(RepeatsOut, "GET", *_path(project, sweep), "repeats")

    def repeat(
        self,
        sweep: str,
        *,
        project: str,
        trial: int | None = None,
        seeds: Sequence[int] = (),
        parameter: str | None = None,
    ) -> RepeatsOut:
        """Run a trial, the best by default, again with other seeds: a job for each.

        The script reads the seed as `parameter`. Without `seeds` they are the next three.
        """
        body = _repeat_body(trial, seeds, parameter)
        segments = (*_path(project, sweep), "repeats")
        return self._connection.fetch(RepeatsOut, "POST", *segments, body=body)

    def quote_repeat(
        self,
        sweep: str,
        *,
        project: str,
        trial: int | None = None,
        seeds: Sequence[int] = (),
        parameter: str | None = None,
    ) -> SweepQuote:
        """Return the price of running a trial again. Nothing is started."""
        body = _repeat_body(trial, seeds, parameter)
        segments = (*_path(project, sweep), "repeats", "quote")
        return self._connection.fetch(SweepQuote, "POST", *segments, body=body)

    def wait(self, sweep: str, *, project: str, timeout_s: float | None = None) -> SweepOut:
        """Return a sweep once it has ended or is paused, or raise TimeoutError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = _FIRST_LOOK_S
        while True:
            result = self.get(sweep, project=project)
            if result.state != "running":
                return result
            if deadline is not None and time.monotonic() + pause_s > deadline:
                raise TimeoutError(
                    f"The sweep {sweep} runs: {result.started} of {result.trials} trials started."
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LATER_LOOKS_S)


def sweep_body(
    job: JobIn,
    *,
    parameters: Mapping[str, str | ParameterSpace],
    metric: str | Metric | Sequence[str | Metric],
    constraints: Sequence[str | Constraint] = (),
    warm_start: Sequence[str] = (),
    name: str | None = None,
    algorithm: str | None = None,
    trials: int | None = None,
    parallel: int | None = None,
    retries: int | None = None,
    seed: int | None = None,
    scheduler: str | None = None,
    min_values: int | None = None,
    eta: int | None = None,
) -> SweepIn:
    """Return the request body that starts or quotes a sweep, or raise InvalidInput.

    `parameters` are ranges such as `loguniform(1e-4,1e-1)`, and `metric` is such as `accuracy:max`,
    or several of them; then there is a Pareto front in place of a best trial. `constraints` are
    such as `latency_ms<=20`. `warm_start` are ids of sweeps and filters of runs to learn from.
    `scheduler` stops trials early (`asha`, `hyperband`, `median`); it first compares them after
    `min_values` values of the metric.
    """
    listed = [metric] if isinstance(metric, str | Metric) else metric
    if not listed:
        raise InvalidInput(
            "No metric is named.", field="metric", next_step="Pass metric='accuracy:max'."
        )
    first, *others = [parse_metric(each) if isinstance(each, str) else each for each in listed]
    bounds = [parse_constraint(each) if isinstance(each, str) else each for each in constraints]
    return build(
        SweepIn,
        name=name,
        job=job,
        parameters={
            key: parse_space(key, space) if isinstance(space, str) else space
            for key, space in parameters.items()
        },
        metric=first,
        other_metrics=others or None,
        constraints=bounds or None,
        warm_start=list(warm_start) or None,
        algorithm=algorithm,
        trials=trials,
        parallel=parallel,
        retries=retries,
        seed=seed,
        scheduler=scheduler,
        min_values=min_values,
        eta=eta,
    )


def _repeat_body(trial: int | None, seeds: Sequence[int], parameter: str | None) -> RepeatIn:
    return build(RepeatIn, trial=trial, seeds=list(seeds) or None, parameter=parameter)


def _path(project: str, sweep: str) -> tuple[str, str, str, str]:
    return ("projects", project, "sweeps", sweep)
