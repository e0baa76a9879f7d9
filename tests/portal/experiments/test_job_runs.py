"""The run every job has: made as the job starts, ended as the job ends, whatever gets lost."""

from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from portal.experiments.adapters.mlflow import batches, writes
from portal.experiments.factories import opener
from portal.experiments.models import Run
from portal.experiments.ports import NewRun
from portal.experiments.services import job_runs
from portal.experiments.services.job_runs import finish_orphaned_runs, run_id_of
from portal.training.models import Job
from portal.workloads.models import Workload
from portal.workloads.services.desired import desired_for
from tests.personas import Personas
from tests.portal.web.labs import make_job, run_job, use_store
from tests.portal.workloads.machines import leases_of, make_machine, make_tier

pytestmark = pytest.mark.postgres


@pytest.fixture
def running(people: Personas, settings: Settings, tmp_path: Path) -> Job:
    """A job of Bob's that runs; its node has asked what to do."""
    use_store(settings, tmp_path)
    make_machine("lab")
    make_tier("small", nano_usd_per_hour=1)
    git = {"commit": "a" * 40, "branch": "main"}
    job = make_job(people.vision, people.bob, name="digits", git=git)
    run_job(job)
    return job


def environment_of(job: Job) -> dict[str, str]:
    """What the node is told to start the job with."""
    (lease,) = leases_of(Workload.objects.get(pk=job.pk))
    (task,) = desired_for(node=lease.node).tasks
    assert task.spec is not None
    return task.spec.env


def test_a_job_finds_its_run_however_often_the_node_asks(running: Job, people: Personas) -> None:
    environment = environment_of(running)
    assert environment_of(running) == environment
    assert environment["MLFLOW_RUN_ID"] == run_id_of(running.pk)
    assert environment["MLFLOW_EXPERIMENT_NAME"] == "digits"
    assert environment["MLFLOW_TRACKING_TOKEN"] == environment["SLIPWAY_TOKEN"]
    assert environment["MLFLOW_TRACKING_URI"] == environment["SLIPWAY_URL"] + "/mlflow"
    run = Run.objects.select_related("experiment").get(pk=environment["MLFLOW_RUN_ID"])
    assert (run.experiment.workspace, run.experiment.name) == (people.vision.pk, "digits")
    tags = dict(run.tags.values_list("key", "value"))
    assert tags["slipway.job"] == running.pk
    assert tags["mlflow.source.git.commit"] == "a" * 40
    assert tags["slipway.ranks"] == "1 x 1"
    assert (run.status, run.user_id) == ("RUNNING", "bob@example.org")


def test_parameters_of_a_job_are_those_of_its_run_and_give_way_to_its_script(
    people: Personas, settings: Settings, tmp_path: Path
) -> None:
    use_store(settings, tmp_path)
    make_machine("lab")
    make_tier("small", nano_usd_per_hour=1)
    params = {"lr": "0.10", "layers": "[64, 32]"}
    job = make_job(people.vision, people.bob, name="digits", params=params)
    run_job(job)
    run_id = environment_of(job)["MLFLOW_RUN_ID"]

    def stored() -> dict[str, str]:
        return dict(Run.objects.get(pk=run_id).params.values_list("key", "value"))

    def log(**values: str) -> None:
        writes.record(people.vision.pk, batches.Batch(run_id, params=values))

    assert stored() == params
    # The script parsed and printed the number: the value that it logs counts.
    log(lr="0.1", epochs="3")
    environment_of(job)
    assert stored() == {"lr": "0.1", "layers": "[64, 32]", "epochs": "3"}
    for name in ("lr", "epochs"):  # from now on, as everywhere in MLflow
        with pytest.raises(batches.UnsupportedRequest):
            log(**{name: "7", "other": "1"})
    assert "other" not in stored()


def test_values_that_do_not_fit_say_so(people: Personas) -> None:
    run = NewRun(
        id="a" * 32,
        project_id=people.vision.pk,
        experiment="digits",
        name="first",
        user="bob@example.org",
        source="d/" * 300 + "train.py",
        started_ms=1_790_000_000_000,
        tags={"k" * 300 + "-a": "1", "k" * 300 + "-b": "v" * 9_000},
    )
    opener().begin(run)
    made = Run.objects.get(pk=run.id)
    assert made.tags.count() == 2
    assert made.tags.filter(value__endswith="(the beginning of 9,000 characters)").count() == 1


def test_a_run_whose_jobs_end_nobody_told_is_ended_later(
    running: Job, people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = environment_of(running)["MLFLOW_RUN_ID"]
    assert finish_orphaned_runs() == 0
    workload = Workload.objects.get(pk=running.pk)
    # As if the portal had died between the job's end and the news of it.
    Workload.objects.filter(pk=workload.pk).update(
        state="stopped", ended_at=workload.created_at, reason="user"
    )
    newer = make_job(people.vision, people.bob)
    Workload.objects.filter(pk=newer.pk).update(
        state="stopped", ended_at=workload.created_at + timedelta(seconds=1), reason="user"
    )
    monkeypatch.setattr(job_runs, "_AT_ONCE", 1)
    assert finish_orphaned_runs() == 1
    assert Run.objects.get(pk=run_id).status == "KILLED"
    assert finish_orphaned_runs() == 0
