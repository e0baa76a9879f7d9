"""An existing Ray cluster by its HTTP interfaces. The portal never imports Ray.

An allocation is a Ray job with the name of the allocation as its submission id, which Ray accepts
once. Its driver (`driver.py`) asks for a placement group of that name, and starts an agent on each
machine of it.

Jobs API: https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html
State API: https://docs.ray.io/en/latest/ray-observability/reference/api.html
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from portal.compute.adapters.engines.agent_command import (
    INDEX,
    ROOT,
    agent_argv,
    agent_variables,
)
from portal.compute.adapters.engines.ray_cluster.settings import RaySettings
from portal.compute.engines import (
    AllocationOrder,
    AllocationPhase,
    AllocationReport,
    EndCause,
    EngineAway,
    EngineRefused,
    Owner,
)

_PATIENCE_S: Final = 20.0
_MOST_LISTED: Final = 10_000
_DRIVER: Final = Path(__file__).with_name("driver.py")
# The driver runs what this variable holds, so nothing has to lie on the nodes.
_COMMAND: Final = "import os; exec(os.environ.pop('SLIPWAY_DRIVER'))"
_ENDS: Final[Mapping[str, EndCause]] = {
    "SUCCEEDED": EndCause.FINISHED,
    "STOPPED": EndCause.CANCELLED,
    "FAILED": EndCause.FAILED,
}
_MOST_DETAIL: Final = 500


class RayEngine:
    """One Ray cluster."""

    def __init__(
        self, settings: RaySettings, *, url: str, python: str, task_python: str = ""
    ) -> None:
        self._settings = settings
        self._url, self._python, self._task_python = url, python, task_python

    def submit(self, order: AllocationOrder) -> str:
        """Submit a Ray job, unless one of this name exists. Raises EngineRefused, EngineAway."""
        bundle = _bundle(order)
        if order.name in self._jobs():
            return order.name
        self._check_size(bundle, order.tasks)
        stop_s = int(order.grace.total_seconds()) + 10
        body = {
            "submission_id": order.name,
            "entrypoint": f"{shlex.quote(self._ray_python)} -c {shlex.quote(_COMMAND)}",
            "metadata": {"slipway": order.label[:100]},
            "runtime_env": {
                "env_vars": {
                    "SLIPWAY_DRIVER": _DRIVER.read_text("utf-8"),
                    "SLIPWAY_ALLOCATION": json.dumps(self._document(order, bundle)),
                    # Ray kills a driver three seconds after it asked it to end, without this.
                    "RAY_JOB_STOP_WAIT_TIME_S": str(stop_s),
                }
            },
        }
        answer = self._call("POST", "/api/jobs/", json=body)
        if answer.is_success or order.name in self._jobs():
            return order.name
        raise EngineRefused(_text_of(answer))

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Report on jobs, by two questions for all of them."""
        jobs = self._jobs()
        groups = self._groups()
        return {
            handle: _report(jobs[handle], groups.get(handle, ""))
            for handle in handles
            if handle in jobs
        }

    def stop(self, handle: str, *, account: str = "") -> None:
        """Send SIGTERM to the driver, which passes it on to the agents."""
        job = self._jobs().get(handle)
        if job is None or job.get("status") in _ENDS:
            return
        answer = self._call("POST", f"/api/jobs/{handle}/stop")
        if not answer.is_success and answer.status_code != httpx.codes.NOT_FOUND:
            raise EngineAway(_text_of(answer))

    def owners_of(self, name: str) -> frozenset[Owner]:
        """Return nobody: Ray does not know who submits a job."""
        return frozenset()

    @property
    def _ray_python(self) -> str:
        return self._settings.ray_python or self._python

    def _document(self, order: AllocationOrder, bundle: Mapping[str, float]) -> dict[str, Any]:
        argv = [*agent_argv(order, folder=self._settings.folder, python=self._python)]
        argv += ["--url", self._url]
        if self._task_python:
            argv += ["--python", self._task_python]
        variables = agent_variables(order)
        if not self._settings.python:
            # The nodes share the folder of this portal's own code.
            variables["PYTHONPATH"] = f"{ROOT / 'platform'}:{ROOT}"
        return {
            "name": order.name,
            "tasks": order.tasks,
            "bundle": bundle,
            "argv": argv,
            "variables": variables,
            "index": INDEX,
        }

    def _check_size(self, bundle: Mapping[str, float], tasks: int) -> None:
        """Refuse what the machines that are there can never hold. Raises EngineRefused."""
        nodes = self._state("nodes", detail=True)
        totals = [
            node.get("resources_total") or {} for node in nodes if node.get("state") == "ALIVE"
        ]
        if not totals:
            raise EngineAway("The Ray cluster has no nodes.")
        places = sum(
            int(min(float(total.get(name, 0)) // amount for name, amount in bundle.items()))
            for total in totals
        )
        if places < tasks:
            needs = dict(bundle)
            memory = needs.pop("memory") / 2**30
            listed = ", ".join(f"{amount:g} {name}" for name, amount in needs.items())
            raise EngineRefused(
                f"The Ray cluster has places for {places} tasks of {listed} and {memory:.1f} GiB "
                f"of memory on its {len(totals)} nodes, and this needs {tasks}."
            )

    def _jobs(self) -> dict[str, dict[str, Any]]:
        """Return all jobs by their submission id."""
        answer = self._good("GET", "/api/jobs/")
        return {str(job["submission_id"]): job for job in answer if job.get("submission_id")}

    def _groups(self) -> dict[str, str]:
        """Return the states of placement groups by their names."""
        groups = self._state("placement_groups")
        return {str(group.get("name", "")): str(group.get("state", "")) for group in groups}

    def _state(self, name: str, *, detail: bool = False) -> list[dict[str, Any]]:
        params = {"limit": _MOST_LISTED, "detail": str(detail).lower()}
        answer = self._good("GET", f"/api/v0/{name}", params=params)
        try:
            return list(answer["data"]["result"]["result"])
        except (KeyError, TypeError) as error:
            raise EngineAway(f"Ray's list of {name} is not readable.") from error

    def _good(self, method: str, path: str, **options: Any) -> Any:
        answer = self._call(method, path, **options)
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise EngineAway(
                "The Ray cluster refuses the token of the pool (its setting token_file)."
            )
        if not answer.is_success:
            raise EngineAway(_text_of(answer))
        try:
            return answer.json()
        except ValueError as error:
            message = "Ray's answer is no JSON. Is address that of its dashboard?"
            raise EngineAway(message) from error

    def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request. Raises EngineAway."""
        settings = self._settings
        headers = {}
        try:
            if settings.token_file:
                token = Path(settings.token_file).read_text("ascii").strip()
                headers = {"Authorization": f"Bearer {token}"}
            return httpx.request(
                method,
                settings.address.rstrip("/") + path,
                headers=headers,
                timeout=_PATIENCE_S,
                **options,
            )
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise EngineAway(f"The Ray cluster does not answer: {reason}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise EngineAway(f"{settings.token_file} cannot be read: {error}") from error


def _bundle(order: AllocationOrder) -> dict[str, float]:
    """Return one machine's share as Ray counts it: CPUs, bytes of memory, GPUs."""
    amount = order.amount
    bundle = {"CPU": amount.cpu_millis / 1000, "memory": float(amount.memory_bytes)}
    if amount.gpus:
        bundle["GPU"] = float(amount.gpus)
        if order.gpu_model:
            bundle[f"accelerator_type:{order.gpu_model}"] = 0.001
    return bundle


def _report(job: Mapping[str, Any], group: str) -> AllocationReport:
    status = str(job.get("status", ""))
    message = str(job.get("message") or "").strip()[-_MOST_DETAIL:]
    if status in _ENDS:
        return AllocationReport(AllocationPhase.ENDED, message, _ENDS[status])
    if status == "RUNNING" and group == "CREATED":
        return AllocationReport(AllocationPhase.GRANTED)
    if status == "RUNNING":
        detail = "its placement group is pending: other work holds the CPUs, memory or GPUs"
        return AllocationReport(AllocationPhase.WAITING, f"{group or 'PENDING'} ({detail})")
    return AllocationReport(AllocationPhase.WAITING, message or status)


def _text_of(answer: httpx.Response) -> str:
    """Return the last line of an error of Ray, which comes with a traceback."""
    lines = [line.strip() for line in answer.text.strip().splitlines() if line.strip()]
    return (lines[-1] if lines else f"Ray answers {answer.status_code}")[:_MOST_DETAIL]
