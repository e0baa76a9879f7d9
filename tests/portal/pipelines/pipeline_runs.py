"""Runs of pipelines and the ends of their jobs, for tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings

from portal.experiments.artifact_paths import artifact_path_of
from portal.experiments.models import Run
from portal.experiments.services.job_runs import run_id_of
from portal.pipelines.services.pipeline_progress import advance_all
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.services.desired import desired_for
from portal.workloads.tokens import token_of
from tests.personas import Api, json_of
from tests.portal.experiments.world import log_curve
from tests.portal.training.jobs import take_code
from tests.portal.workloads.machines import Machine, finish, run

RUNS = "projects/vision/pipelines/runs"
PLAN = "projects/vision/pipelines/plan"
CODE = {
    "train.py": b"print('hello')\n",
    "steps.py": b"import slipway\n",
    "requirements.txt": b"",
}


def step(name: str, **fields: Any) -> dict[str, Any]:
    """Return a step that is a job."""
    return {"name": name, "script": f"steps.py::{name}", "tier": "small"} | fields


def three_steps(**changes: Any) -> list[dict[str, Any]]:
    """Return the usual steps: prepare, train with its output, and a comparison with that."""
    return [
        step("prepare", inputs={"rows": "${parameters.rows}"}, outputs={"data": {"type": "file"}}),
        step(
            "train",
            inputs={"data": "${steps.prepare.outputs.data}", "lr": 0.1},
            outputs={"accuracy": {"type": "number"}},
        ),
        step("compare", inputs={"accuracy": "${steps.train.outputs.accuracy}"}) | changes,
    ]


def body_of(api: Api, steps: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """Upload the code and return a run to start."""
    pipeline = {
        "name": "digits",
        "parameters": {"rows": {"type": "integer", "default": 10}},
        "steps": steps,
    }
    return {"pipeline": pipeline, "snapshot": take_code(api, CODE)} | changes


def start(api: Api, steps: list[dict[str, Any]], **changes: Any) -> str:
    """Start a run that must be accepted, and its first jobs. Returns its id."""
    answer = api.post(RUNS, body_of(api, steps, **changes))
    assert answer.status_code == 201, answer.content
    advance()
    run_id: str = json_of(answer)["id"]
    return run_id


def advance() -> None:
    """Let control do what is due, then the scheduler."""
    advance_all()
    run_passes()


def shown(api: Api, run_id: str) -> dict[str, Any]:
    """Return the run as the API shows it."""
    answer = api.get(f"{RUNS}/{run_id}")
    assert answer.status_code == 200, answer.content
    document: dict[str, Any] = json_of(answer)
    return document


def steps_of(api: Api, run_id: str) -> dict[str, dict[str, Any]]:
    """Return the steps by name, without the items of fan-outs."""
    return {row["step"]: row for row in shown(api, run_id)["steps"] if row["item"] is None}


def states_of(api: Api, run_id: str) -> dict[str, str]:
    """Return the states of the steps by name."""
    return {name: row["state"] for name, row in steps_of(api, run_id).items()}


def report(job: str, outputs: Mapping[str, Any]) -> Any:
    """Let a job report outputs with its token."""
    workload = Workload.objects.get(pk=job)
    own = Api(token_of(workload.pk, workload.epoch))
    return own.put(f"projects/vision/pipelines/jobs/{job}/outputs", {"outputs": outputs})


def keep_file(job: str, path: str, content: bytes = b"data") -> Path:
    """Let the node keep a file of a job, and return where it lies."""
    tracked = Run.objects.get(pk=run_id_of(job))
    workload = Workload.objects.get(pk=job)
    inside = artifact_path_of(workload.project_id, tracked.artifact_uri or "")
    root = Path(settings.SLIPWAY_ARTIFACTS_URL.removeprefix("file://"))
    file = root / str(inside) / "files" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def end_job(
    job: str,
    machine: Machine,
    outputs: Mapping[str, Any] | None = None,
    *,
    files: tuple[str, ...] = (),
    metrics: Mapping[str, float] | None = None,
    reason: str = "completed",
) -> None:
    """Let a job run, report, and end. Then control does what is due."""
    run_passes()
    workload = Workload.objects.get(pk=job)
    desired_for(node=machine.node)  # makes the run
    run(workload)
    if outputs:
        answer = report(job, outputs)
        assert answer.status_code == 204, answer.content
    for file in files:
        keep_file(job, file)
    for key, value in (metrics or {}).items():
        log_curve(Run.objects.get(pk=run_id_of(job)), key, [value])
    finish(workload, reason, exit_code=0 if reason == "completed" else 1)
    advance()


def finish_three(api: Api, machine: Machine, run_id: str, accuracy: float = 0.9) -> None:
    """Let the jobs of the usual three steps succeed."""
    end_job(steps_of(api, run_id)["prepare"]["job"], machine, {"data": "d.csv"}, files=("d.csv",))
    end_job(steps_of(api, run_id)["train"]["job"], machine, {"accuracy": accuracy})
    end_job(steps_of(api, run_id)["compare"]["job"], machine)
