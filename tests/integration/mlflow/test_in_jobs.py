"""Scripts that know nothing of Slipway, started as a node starts them in a job."""

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, clean_environment
from tests.tracking import TrackingPortal

pytestmark = pytest.mark.integration
_SCRIPT = Path(__file__).parent / "in_job.py"
_IN_RANKS = Path(__file__).parent / "in_ranks.py"
# Runs inside `manage.py shell`: a job of alice's that runs, and what its process is started with.
_RUNNING_JOB = """
import json
from portal.accounts.models import Project, User
from portal.workloads.services.desired import desired_for
from tests.portal.web.labs import make_job, run_job
from tests.portal.workloads.machines import leases_of, make_machine, make_tier
make_machine("lab-{mark}")
make_tier("small-{mark}", nano_usd_per_hour=1)
project = Project.objects.get(slug="{slug}")
alice = User.objects.get(email="alice@example.org")
job = make_job(project, alice, name="digits", tier="small-{mark}")
(lease,) = leases_of(run_job(job))
(task,) = (t for t in desired_for(node=lease.node).tasks if t.task_id == lease.task_id)
print("made " + json.dumps(task.spec.env))
"""


def variables_of_new_job(tracking: TrackingPortal) -> dict[str, str]:
    """Return the variables of a job that runs, for as long as the portal that it runs in."""
    text = _RUNNING_JOB.format(slug=tracking.projects["alice"], mark=secrets.token_hex(3))
    done = tracking.portal.installation.manage("shell", "-c", text)
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("made "))
    environment: dict[str, str] = json.loads(line.removeprefix("made "))
    return environment


@pytest.fixture(scope="session")
def variables(tracking: TrackingPortal) -> dict[str, str]:
    """The variables of a job."""
    return variables_of_new_job(tracking)


def run_in_job(
    variables: dict[str, str], *command: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command as the process of a job, to its good end."""
    done = subprocess.run(
        [sys.executable, *command],
        env=clean_environment()
        | variables
        | {"PYTHONPATH": str(ROOT / "workers/launcher/in_jobs"), "GIT_PYTHON_REFRESH": "quiet"}
        | more,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done


@pytest.mark.thorough
def test_a_script_may_set_its_experiment_and_leave_its_run_open(
    tracking: TrackingPortal, variables: dict[str, str]
) -> None:
    done = run_in_job(variables, str(_SCRIPT))
    printed = next(line for line in done.stdout.splitlines() if line.startswith("["))
    own, other, left = json.loads(printed)
    assert own == variables["MLFLOW_RUN_ID"]
    client = tracking.client("alice")
    infos = [client.get("runs/get", run_id=run)["run"]["info"] for run in (own, other, left)]
    names = [
        client.get("experiments/get", experiment_id=info["experiment_id"])["experiment"]["name"]
        for info in infos
    ]
    assert names == ["first", "second", "second"]
    points = client.get("metrics/get-history", run_id=left, metric_key="loss")["metrics"]
    assert [point["step"] for point in points] == list(range(200))


@pytest.mark.thorough
@pytest.mark.torch
def test_the_ranks_of_torchrun_log_to_the_one_run_of_their_job(
    tracking: TrackingPortal, variables: dict[str, str]
) -> None:
    name = f"ranks-{secrets.token_hex(3)}"
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3")
    done = run_in_job(variables, *launcher, str(_IN_RANKS), EXPERIMENT_OF_THE_TEST=name)
    pairs = sorted(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    own = variables["MLFLOW_RUN_ID"]
    assert pairs == [[own, rank] for rank in range(3)]
    client = tracking.client("alice")
    experiment = client.get("experiments/get-by-name", experiment_name=name)["experiment"]
    runs = client.post("runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
    assert [run["info"]["run_id"] for run in runs] == [own]
    (run,) = runs
    assert {param["key"]: param["value"] for param in run["data"]["params"]}["lr"] == "0.1"
    for key, steps in (*((f"loss_{rank}", range(5)) for rank in range(3)), ("last", range(3))):
        # Named after the test, for all tests log to the one run, this one again when tried again.
        history = client.get("metrics/get-history", run_id=own, metric_key=f"{name}_{key}")
        points = history["metrics"]
        assert sorted(point["step"] for point in points) == list(steps)


def test_only_the_jobs_own_token_moves_its_run(
    tracking: TrackingPortal, variables: dict[str, str]
) -> None:
    alice, run = tracking.client("alice"), variables["MLFLOW_RUN_ID"]
    before = alice.get("runs/get", run_id=run)["run"]["info"]["experiment_id"]
    elsewhere = alice.new_experiment("elsewhere")
    foreign = tracking.client("charlie").new_experiment("foreign")
    job = f"Bearer {variables['MLFLOW_TRACKING_TOKEN']}"
    person = f"Bearer {tracking.portal.tokens['alice']}"

    def experiment_of(token: str, experiment: str) -> str:
        headers = {"Authorization": token, "X-Slipway-Experiment": experiment}
        response = tracking.client("alice", **headers).get("runs/get", run_id=run)
        return str(response["run"]["info"]["experiment_id"])

    assert experiment_of(person, elsewhere) == before
    for experiment in (foreign, "987654", "x", "9" * 30):
        assert experiment_of(job, experiment) == before
    assert experiment_of(job, elsewhere) == elsewhere


_CREATES_RUNS = """
import json, mlflow
from mlflow import MlflowClient
client = MlflowClient()
experiment = client.create_experiment("of a script %s")
own = client.create_run(experiment).info.run_id
named = client.create_run(experiment, tags={"slipway.job": "other", "a": "b"}).info.run_id
nested = client.create_run(experiment, tags={"mlflow.parentRunId": own}).info.run_id
print(json.dumps([own, named, nested]))
"""


def test_runs_that_a_script_creates_itself_lead_to_its_job(
    tracking: TrackingPortal, variables: dict[str, str]
) -> None:
    done = run_in_job(variables, "-c", _CREATES_RUNS % secrets.token_hex(4))
    created, named, nested = json.loads(done.stdout.splitlines()[-1])
    client = tracking.client("alice")
    tags_of = []
    for run in (variables["MLFLOW_RUN_ID"], created, named, nested):
        tags = client.get("runs/get", run_id=run)["run"]["data"]["tags"]
        tags_of.append({tag["key"]: tag["value"] for tag in tags})
    assert tags_of[1]["slipway.job"] == tags_of[0]["slipway.job"]
    assert (tags_of[2]["slipway.job"], tags_of[2]["a"]) == ("other", "b")
    assert "slipway.job" not in tags_of[3]  # its parent leads there
    of_person = client.post("runs/create", {"experiment_id": client.new_experiment("person")})
    tags = of_person["run"]["data"].get("tags", [])
    assert "slipway.job" not in [tag["key"] for tag in tags]


_CREATES_FIRST = """
import json, sys, mlflow
from mlflow import MlflowClient
client = MlflowClient()
experiment = client.create_experiment(sys.argv[1])
first = client.create_run(experiment, run_name="fold 1", tags={"fold": "1"}).info
client.log_metric(first.run_id, "loss", 0.5)
second = client.create_run(experiment, run_name="fold 2").info
with mlflow.start_run(run_id=first.run_id):
    mlflow.log_param("lr", 0.25)
print(json.dumps([first.run_id, first.run_name, first.experiment_id, experiment, second.run_id]))
"""
_CREATES_SECOND = """
import json, mlflow
from mlflow import MlflowClient
with mlflow.start_run() as run:
    mlflow.log_metric("loss", 0.5)
print(json.dumps([run.info.run_id, MlflowClient().create_run("0").info.run_id]))
"""


def test_the_first_run_that_a_client_creates_is_the_one_of_the_job(
    tracking: TrackingPortal,
) -> None:
    variables = variables_of_new_job(tracking)
    own = variables["MLFLOW_RUN_ID"]
    done = run_in_job(variables, "-c", _CREATES_FIRST, f"folds {secrets.token_hex(4)}")
    first, name, place, experiment, second = json.loads(done.stdout.splitlines()[-1])
    assert (first, name, place) == (own, "fold 1", experiment)
    assert second != own
    client = tracking.client("alice")
    data = client.get("runs/get", run_id=own)["run"]["data"]
    assert [metric["key"] for metric in data["metrics"]] == ["loss"]
    tags = {tag["key"]: tag["value"] for tag in data["tags"]}
    assert tags["fold"] == "1"
    assert tags["slipway.tier"].startswith("small-")


def test_a_run_that_follows_a_begun_one_is_another(tracking: TrackingPortal) -> None:
    variables = variables_of_new_job(tracking)
    done = run_in_job(variables, "-c", _CREATES_SECOND)
    first, second = json.loads(done.stdout.splitlines()[-1])
    assert first == variables["MLFLOW_RUN_ID"]
    assert second != first
