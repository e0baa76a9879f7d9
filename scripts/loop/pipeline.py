"""Demo step: a pipeline of three steps, and a second run that has nothing left to do."""

from typing import Final

from scripts.loop.data import EXAMPLE, PROJECT
from scripts.loop.steps import DemoError, ReasonReporter, show, wait_for
from slipway import Client
from slipway.pipeline_runs import run_pipeline
from slipway.schemas.money import dollars
from slipway.schemas.pipelines import PipelineRunOut, PipelineRunState, StepState

_ENDS_WITHIN_S: Final = 1500.0
_MIN_ACCURACY: Final = 0.9


def run_twice(client: Client) -> None:
    """Run the pipeline of the example twice. The second run reuses every step of the first."""
    first = _run(client)
    result = first.steps[-1].outputs["result"]
    if result["accuracy"] < _MIN_ACCURACY:
        raise DemoError(f"the pipeline found no good classifier: {result['accuracy']:.4f}")
    show("chosen", f"{result['neighbours']} neighbours: accuracy {result['accuracy']:.4f}")
    again = _run(client)
    if any(step.state is not StepState.REUSED for step in again.steps):
        raise DemoError("the second run of the pipeline ran steps again")
    show("reused", f"all {len(again.steps)} steps of the second run")


def _run(client: Client) -> PipelineRunOut:
    started = run_pipeline(EXAMPLE / "flow.py", folder=EXAMPLE, project=PROJECT, client=client)
    show("pipeline", f"{client.url}/p/{PROJECT}/pipelines/{started.id}")
    reporter = ReasonReporter()

    def poll() -> PipelineRunOut | None:
        run = client.pipelines.get(started.id, project=PROJECT)
        reporter.report(run.explanation)
        return run if run.state.has_ended else None

    ended = wait_for(poll, "the end of the pipeline", within_s=_ENDS_WITHIN_S, every_s=0.3)
    if ended.state is not PipelineRunState.SUCCEEDED:
        reasons = "; ".join(f"{step.step}: {step.explanation}" for step in ended.steps)
        raise DemoError(f"the pipeline {ended.explanation} {reasons}")
    show("cost", dollars(ended.cost_nano_usd))
    return ended
