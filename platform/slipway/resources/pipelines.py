"""Runs of pipelines: steps with dependencies, most of which are jobs."""

import time
from collections.abc import Callable

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.pipelines import (
    PipelinePlan,
    PipelineRunIn,
    PipelineRunOut,
    StepDecision,
)

_FIRST_LOOK_S, _LATER_LOOKS_S = 0.2, 3.0


class Pipelines:
    """The runs of pipelines of a project. `run` is the id of one, `step` the name of a step.

    GET, POST projects/{project}/pipelines/runs · POST pipelines/plan · GET pipelines/runs/{run} ·
    POST …/cancel, resume, steps/{step}/decision
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str, search: str | None = None) -> Pages[PipelineRunOut]:
        """List runs of pipelines whose name contains `search`, newest first, without steps."""
        segments = ("projects", project, "pipelines", "runs")
        return Pages(self._connection, segments, PageOf[PipelineRunOut], {"q": search})

    def get(self, run: str, *, project: str) -> PipelineRunOut:
        """Return one run with its steps."""
        return self._connection.fetch(PipelineRunOut, "GET", *_path(project, run))

    def start(self, body: PipelineRunIn, *, project: str) -> PipelineRunOut:
        """Start a run. `slipway.run_pipeline` does this for a file and a folder of code.

        Raises InvalidInput for what can never run.
        """
        segments = ("projects", project, "pipelines", "runs")
        return self._connection.fetch(PipelineRunOut, "POST", *segments, body=body)

    def plan(self, body: PipelineRunIn, *, project: str) -> PipelinePlan:
        """Return what a run would reuse, and what the rest would cost. Nothing is started."""
        segments = ("projects", project, "pipelines", "plan")
        return self._connection.fetch(PipelinePlan, "POST", *segments, body=body)

    def cancel(self, run: str, *, project: str) -> PipelineRunOut:
        """End a run and its jobs."""
        return self._connection.fetch(PipelineRunOut, "POST", *_path(project, run), "cancel")

    def resume(self, run: str, *, project: str) -> PipelineRunOut:
        """Resume a failed or cancelled run. You pay from then on."""
        return self._connection.fetch(PipelineRunOut, "POST", *_path(project, run), "resume")

    def approve(self, run: str, step: str, *, project: str, note: str = "") -> PipelineRunOut:
        """Approve a step that waits for it."""
        return self._decide(run, step, project, "approve", note)

    def decline(self, run: str, step: str, *, project: str, note: str = "") -> PipelineRunOut:
        """Decline a step that waits for approval. It fails."""
        return self._decide(run, step, project, "decline", note)

    def wait(
        self,
        run: str,
        *,
        project: str,
        timeout_s: float | None = None,
        on_change: Callable[[PipelineRunOut], None] | None = None,
    ) -> PipelineRunOut:
        """Return a run once it has ended, or raise TimeoutError. `on_change` gets each answer."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = _FIRST_LOOK_S
        while True:
            result = self.get(run, project=project)
            if on_change is not None:
                on_change(result)
            if result.state.has_ended:
                return result
            if deadline is not None and time.monotonic() + pause_s > deadline:
                raise TimeoutError(f"The run {run} goes on: {result.counts}.")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LATER_LOOKS_S)

    def _decide(self, run: str, step: str, project: str, verdict: str, note: str) -> PipelineRunOut:
        body = build(StepDecision, verdict=verdict, note=note)
        segments = (*_path(project, run), "steps", step, "decision")
        return self._connection.fetch(PipelineRunOut, "POST", *segments, body=body)


def _path(project: str, run: str) -> tuple[str, str, str, str, str]:
    return ("projects", project, "pipelines", "runs", run)
