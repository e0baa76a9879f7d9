"""Demo step: a sweep of eight trials over the digits."""

from typing import Final

from scripts.loop.data import EXAMPLE, PROJECT
from scripts.loop.steps import DemoError, ReasonReporter, show, wait_for
from slipway import Client
from slipway.resources.jobs import job_body
from slipway.resources.sweeps import sweep_body
from slipway.schemas.datasets import DatasetVersionOut
from slipway.schemas.money import dollars
from slipway.schemas.sweeps import SweepIn, SweepOut, SweepState
from slipway.snapshots import take_snapshot
from slipway.sweep_files import read_sweep_file

NAME: Final = "digits"
_ENDS_WITHIN_S: Final = 1500.0
_MIN_ACCURACY: Final = 0.9


def run_sweep(client: Client, data: DatasetVersionOut) -> None:
    """Run the sweep of the example, unless it has finished already, and show its best trial."""
    sweep = _find_finished(client)
    if sweep is None:
        body = _body(client, data)
        quote = client.sweeps.quote(body, project=PROJECT)
        price = dollars(quote.nano_usd_per_hour)
        show("price", f"{price} an hour while {quote.parallel} trials run")
        started = client.sweeps.start(body, project=PROJECT)
        show("sweep", f"{client.url}/p/{PROJECT}/sweeps/{started.id}")
        sweep = _SweepWatch(client, started.id).until_it_ends()
    else:
        show("sweep", f"{client.url}/p/{PROJECT}/sweeps/{sweep.id}, from an earlier demo")
    if sweep.state is not SweepState.FINISHED or sweep.best is None:
        raise DemoError(f"the sweep has not finished: {sweep.explanation}")
    if sweep.best.value < _MIN_ACCURACY:
        raise DemoError(f"the sweep found no good parameters: {sweep.best.value:.4f} at best")
    values = ", ".join(f"{name} {value}" for name, value in sorted(sweep.best.parameters.items()))
    show("best", f"accuracy {sweep.best.value:.4f} in trial {sweep.best.number}: {values}")
    show("trials", f"{sweep.complete} complete, {sweep.pruned} stopped early")
    show("cost", dollars(sweep.cost_nano_usd))


def _find_finished(client: Client) -> SweepOut | None:
    for sweep in client.sweeps.list(project=PROJECT, search=NAME):
        if (sweep.name, sweep.state) == (NAME, SweepState.FINISHED):
            return sweep
    return None


def _body(client: Client, data: DatasetVersionOut) -> SweepIn:
    file = read_sweep_file(EXAMPLE / "sweep.yaml")
    with take_snapshot(EXAMPLE, script=file.script) as snapshot:
        client.snapshots.upload(snapshot, project=PROJECT)
        job = job_body(
            script=file.script, snapshot=snapshot.digest, datasets=[data.reference or ""]
        )
    return sweep_body(
        job,
        name=NAME,
        parameters=file.parameters,
        metric=file.metrics,
        algorithm=file.algorithm,
        trials=file.trials,
        parallel=file.parallel,
        seed=file.seed,
        scheduler=file.scheduler,
        min_values=file.min_values,
    )


class _SweepWatch:
    """Polls a sweep until it has ended, and prints how far it is."""

    def __init__(self, client: Client, sweep: str) -> None:
        self._client = client
        self._sweep = sweep
        self._reporter = ReasonReporter()

    def until_it_ends(self) -> SweepOut:
        """Wait for the end of the sweep and return its final state."""
        return wait_for(self._poll, "the end of the sweep", within_s=_ENDS_WITHIN_S, every_s=0.5)

    def _poll(self) -> SweepOut | None:
        sweep = self._client.sweeps.get(self._sweep, project=PROJECT)
        ended = sweep.complete + sweep.pruned + sweep.failed + sweep.stopped
        text = f"{ended} of {sweep.trials} trials have ended"
        best = f", accuracy {sweep.best.value:.4f} at best" if sweep.best else ""
        self._reporter.report(f"{text}{best}")
        return None if sweep.state is SweepState.RUNNING else sweep
