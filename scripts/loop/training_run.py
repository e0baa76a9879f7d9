"""The steps of training: two jobs of two ranks each, metrics while they run, runs compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scripts.loop.data import DATASET, EXAMPLE, PROJECT
from scripts.loop.steps import DemoError, show, wait_for
from slipway import Client, train
from slipway.console import headline, progress_of
from slipway.schemas.datasets import DatasetVersionOut
from slipway.schemas.experiments import RunOut
from slipway.schemas.money import dollars
from slipway.schemas.training import JobOut
from slipway.schemas.workloads import WorkloadState
from slipway.snapshots import take_snapshot

MODEL: Final = "digits"
_SCRIPT: Final = "train.py"
_RANKS: Final = 2
_TRAINED_WITHIN_S: Final = 1500.0  # the first time, the node installs torch and MLflow
_LEARNED: Final = 0.9  # the longer training reaches 0.97


@dataclass(frozen=True)
class Training:
    """What is to be trained: how long, and what it is called."""

    name: str
    epochs: int


SHORT: Final = Training("a short training", 4)
LONG: Final = Training("a longer training", 16)


def run_job(client: Client, wanted: Training, data: DatasetVersionOut) -> JobOut:
    """Train on two ranks, unless the same code has trained it on the same data before."""
    found = _find_earlier_job(client, wanted, data)
    if found is not None:
        show("job", client.jobs.page(found.workload.id, project=PROJECT))
        show("cost", f"{dollars(found.cost_nano_usd)}, from an earlier demo")
        return found
    job = train(
        _SCRIPT,
        folder=EXAMPLE,
        datasets=[data.reference or ""],
        procs=_RANKS,
        strategy="ddp",
        params=_params(wanted),
        name=wanted.name,
        project=PROJECT,
        client=client,
    )
    show("job", client.jobs.page(job.workload.id, project=PROJECT))
    show("price", f"{dollars(job.nano_usd_per_hour)} an hour")
    ended = _JobWatch(client, job.workload.id).until_it_ends()
    if ended.workload.state is not WorkloadState.SUCCEEDED:
        log = _log(client, ended)
        raise DemoError(f"the job {headline(progress_of(ended))} Its log ends: {log[-500:]!r}")
    show("first step", f"{ended.first_step_after_s or 0:.2f} s after it was submitted")
    show("cost", dollars(ended.cost_nano_usd))
    return ended


def _params(wanted: Training) -> dict[str, str]:
    return {"epochs": str(wanted.epochs), "register": MODEL}


def _find_earlier_job(client: Client, wanted: Training, data: DatasetVersionOut) -> JobOut | None:
    with take_snapshot(EXAMPLE, script=_SCRIPT) as snapshot:
        digest = snapshot.digest
    for job in client.jobs.list(project=PROJECT, state=WorkloadState.SUCCEEDED):
        same_code = (job.script, job.snapshot.digest) == (_SCRIPT, digest)
        same_data = job.datasets == [data.reference]
        if same_code and same_data and job.params == _params(wanted):
            return job
    return None


class _JobWatch:
    """A job that is looked at until it has ended, and what its run tells meanwhile."""

    def __init__(self, client: Client, job: str) -> None:
        self._client = client
        self._job = job
        self._said = ""
        self._points = 0

    def until_it_ends(self) -> JobOut:
        """Return it as it ended."""
        return wait_for(self._look, "the end of the job", within_s=_TRAINED_WITHIN_S, every_s=0.3)

    def _look(self) -> JobOut | None:
        job = self._client.jobs.get(self._job, project=PROJECT)
        said = headline(progress_of(job))
        if said != self._said:
            self._said = said
            print(f"  · {said}", flush=True)
        if job.workload.state is WorkloadState.RUNNING:
            self._tell_metrics()
        return job if job.workload.state.is_final else None

    def _tell_metrics(self) -> None:
        run = _run_of(self._client, self._job)
        if run is None:
            return
        for curve in self._client.runs.curves([run.id], ["accuracy"], project=PROJECT):
            if curve.total > self._points:
                self._points = curve.total
                last = curve.points[-1]
                show("live", f"accuracy {last.value:.4f} at step {last.step}")


def _run_of(client: Client, job: str) -> RunOut | None:
    found = client.runs.list(project=PROJECT, filter=f"tags.`slipway.job` = '{job}'")
    return next(iter(found), None)


def _log(client: Client, job: JobOut) -> str:
    return b"".join(client.jobs.logs(job.workload.id, project=PROJECT, rank=0)).decode()


def check(client: Client, job: JobOut) -> None:
    """Show what a job has come to; raises DemoError unless it learned and saved checkpoints."""
    said = [line for line in _log(client, job).splitlines() if line.startswith("accuracy on ")]
    if not said:
        raise DemoError(f"the job {job.workload.name} reported no accuracy")
    saved = client.jobs.checkpoints(job.workload.id, project=PROJECT)
    if not saved:
        raise DemoError(f"the job {job.workload.name} saved no checkpoint")
    show("result", said[-1])
    show("checkpoints", f"{len(saved)} saved, the latest at step {max(one.step for one in saved)}")


def compare_runs(client: Client, jobs: Sequence[JobOut], data: DatasetVersionOut) -> None:
    """Show the runs of the jobs side by side, and that the data knows who has read it."""
    runs = []
    for job in jobs:
        run = _run_of(client, job.workload.id)
        if run is None or "accuracy" not in run.metrics:
            raise DemoError(f"the job {job.workload.name} logged no accuracy to a run")
        runs.append(run.id)
    found = client.runs.compare(runs, project=PROJECT)
    show("compare", f"{client.url}/p/{PROJECT}/compare?{'&'.join(f'run={run}' for run in runs)}")
    for run, job in zip(found.runs, jobs, strict=True):
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(run.metrics.items()))
        show("run", f"{job.workload.name}, {job.params['epochs']} epochs: {metrics}")
    best = max(found.runs, key=lambda run: run.metrics["accuracy"])
    if best.metrics["accuracy"] < _LEARNED:
        raise DemoError(f"the classifier did not learn: {best.metrics['accuracy']:.4f} at best")
    show("better", client.runs.page(best.id, project=PROJECT))
    readers = {use.job for use in client.datasets.uses(DATASET, data.number or 0, project=PROJECT)}
    if not readers >= {job.workload.id for job in jobs}:
        raise DemoError(f"{data.reference} does not list the jobs that used it")
    show("lineage", f"{data.reference} → {' and '.join(job.workload.name for job in jobs)}")
