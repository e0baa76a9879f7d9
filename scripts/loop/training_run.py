"""Demo steps: two training jobs of two ranks each, a search, and a comparison of the runs."""

from collections.abc import Mapping, Sequence
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
_TRAINING_WITHIN_S: Final = 1500.0  # the first time, the node installs torch and MLflow
_MIN_ACCURACY: Final = 0.9  # the longer training reaches 0.97


@dataclass(frozen=True)
class Training:
    """A training to run: a script of the example, its parameters, and its number of ranks."""

    name: str
    params: Mapping[str, str]
    script: str = "train.py"
    ranks: int = 2


SHORT: Final = Training("a short training", {"epochs": "4", "register": MODEL})
LONG: Final = Training("a longer training", {"epochs": "16", "register": MODEL})
SEARCH: Final = Training("a search", {"epochs": "9"}, script="search.py", ranks=1)


def run_job(
    client: Client, training: Training, data: DatasetVersionOut, pool: str | None = None
) -> JobOut:
    """Train, unless a job has already run the same code on the same data in the same pool."""
    earlier = _find_earlier_job(client, training, data, pool)
    if earlier is not None:
        show("job", client.jobs.page(earlier.workload.id, project=PROJECT))
        show("cost", f"{dollars(earlier.cost_nano_usd)}, from an earlier demo")
        return earlier
    job = train(
        training.script,
        folder=EXAMPLE,
        datasets=[data.reference or ""],
        procs=training.ranks,
        strategy="ddp" if training.ranks > 1 else None,
        params=training.params,
        name=training.name,
        pool=pool,
        project=PROJECT,
        client=client,
    )
    show("job", client.jobs.page(job.workload.id, project=PROJECT))
    show("price", f"{dollars(job.nano_usd_per_hour)} an hour")
    finished = JobWatch(client, job.workload.id).until_it_ends()
    if finished.workload.state is not WorkloadState.SUCCEEDED:
        log = _log(client, finished)
        raise DemoError(f"the job {headline(progress_of(finished))} Its log ends: {log[-500:]!r}")
    if finished.first_step_after_s is not None:
        show("first step", f"{finished.first_step_after_s:.2f} s after submission")
    show("cost", dollars(finished.cost_nano_usd))
    return finished


def _find_earlier_job(
    client: Client, training: Training, data: DatasetVersionOut, pool: str | None
) -> JobOut | None:
    with take_snapshot(EXAMPLE, script=training.script) as snapshot:
        digest = snapshot.digest
    for job in client.jobs.list(project=PROJECT, state=WorkloadState.SUCCEEDED):
        same_code = (job.script, job.snapshot.digest) == (training.script, digest)
        same_data = job.datasets == [data.reference]
        if same_code and same_data and (job.params, job.pool) == (training.params, pool):
            return job
    return None


class JobWatch:
    """Polls a job until it has ended, and prints its progress and metrics."""

    def __init__(self, client: Client, job: str) -> None:
        self._client = client
        self._job = job
        self._last_headline = ""
        self._points = 0

    def until_it_ends(self) -> JobOut:
        """Wait for the end of the job and return its final state."""
        return wait_for(self._poll, "the end of the job", within_s=_TRAINING_WITHIN_S, every_s=0.3)

    def _poll(self) -> JobOut | None:
        job = self._client.jobs.get(self._job, project=PROJECT)
        text = headline(progress_of(job))
        if text != self._last_headline:
            self._last_headline = text
            print(f"  · {text}", flush=True)
        if job.workload.state is WorkloadState.RUNNING:
            self._print_metrics()
        return job if job.workload.state.is_final else None

    def _print_metrics(self) -> None:
        run = _run_of(self._client, self._job)
        if run is None:
            return
        for curve in self._client.runs.curves([run.id], ["accuracy"], project=PROJECT):
            if curve.total > self._points:
                self._points = curve.total
                last = curve.points[-1]
                show("live", f"accuracy {last.value:.4f} at step {last.step}")


def _run_of(client: Client, job: str) -> RunOut | None:
    runs = client.runs.list(project=PROJECT, filter=f"tags.`slipway.job` = '{job}'")
    return next(iter(runs), None)


def _log(client: Client, job: JobOut) -> str:
    return b"".join(client.jobs.logs(job.workload.id, project=PROJECT, rank=0)).decode()


def check_result(client: Client, job: JobOut) -> None:
    """Print the result of a job. Raises DemoError without an accuracy."""
    results = [line for line in _log(client, job).splitlines() if line.startswith("accuracy on ")]
    if not results:
        raise DemoError(f"the job {job.workload.name} reported no accuracy")
    show("result", results[-1])


def check(client: Client, job: JobOut) -> None:
    """Print the result of a training. Raises DemoError without an accuracy or a checkpoint."""
    check_result(client, job)
    checkpoints = client.jobs.checkpoints(job.workload.id, project=PROJECT)
    if not checkpoints:
        raise DemoError(f"the job {job.workload.name} saved no checkpoint")
    latest = max(checkpoint.step for checkpoint in checkpoints)
    show("checkpoints", f"{len(checkpoints)} saved, the latest at step {latest}")


def show_search(client: Client, job: JobOut) -> None:
    """Print the runs of a search, best first. Raises DemoError for a search without runs."""
    check_result(client, job)
    run = _run_of(client, job.workload.id)
    children = f"tags.`mlflow.parentRunId` = '{run.id}'" if run else ""
    runs = list(client.runs.list(project=PROJECT, filter=children)) if children else []
    if not runs:
        raise DemoError(f"the job {job.workload.name} logged no runs")
    runs.sort(key=lambda it: it.metrics.get("accuracy", 0.0), reverse=True)
    query = "&".join(f"run={it.id}" for it in runs)
    show("search", f"{len(runs)} runs, the best with {runs[0].name}")
    show("compare", f"{client.url}/p/{PROJECT}/compare?{query}")
    show("images", client.runs.page(runs[0].id, project=PROJECT))


def compare_runs(client: Client, jobs: Sequence[JobOut], data: DatasetVersionOut) -> None:
    """Compare the runs of the jobs, and check that the data lineage lists both jobs."""
    runs = []
    for job in jobs:
        run = _run_of(client, job.workload.id)
        if run is None or "accuracy" not in run.metrics:
            raise DemoError(f"the job {job.workload.name} logged no accuracy to a run")
        runs.append(run.id)
    comparison = client.runs.compare(runs, project=PROJECT)
    show("compare", f"{client.url}/p/{PROJECT}/compare?{'&'.join(f'run={run}' for run in runs)}")
    for run, job in zip(comparison.runs, jobs, strict=True):
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(run.metrics.items()))
        show("run", f"{job.workload.name}, {job.params['epochs']} epochs: {metrics}")
    best = max(comparison.runs, key=lambda run: run.metrics["accuracy"])
    if best.metrics["accuracy"] < _MIN_ACCURACY:
        raise DemoError(f"the classifier did not learn: {best.metrics['accuracy']:.4f} at best")
    show("better", client.runs.page(best.id, project=PROJECT))
    readers = {use.job for use in client.datasets.uses(DATASET, data.number or 0, project=PROJECT)}
    if not readers >= {job.workload.id for job in jobs}:
        raise DemoError(f"{data.reference} does not list the jobs that used it")
    show("lineage", f"{data.reference} → {' and '.join(job.workload.name for job in jobs)}")
