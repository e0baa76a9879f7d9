"""Batch predictions for tests: a model, data, and the job as its program speaks for it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.services.desired import desired_for
from portal.workloads.tokens import token_of
from tests.personas import Api, json_of
from tests.portal.datasets.pushing import begin, fill, push
from tests.portal.registry.store import Store
from tests.portal.workloads.machines import Machine, finish, run

AT = "projects/vision/batch-predictions"
DATA = b"id,price,count\nr1,1.5,2\nr2,2.5,3\n"
INPUTS = [
    {"type": "double", "name": "price", "required": True},
    {"type": "long", "name": "count", "required": True},
    {"type": "string", "name": "shop", "required": False},
]


def model_files(inputs: Sequence[Mapping[str, Any]] | None = INPUTS) -> dict[str, bytes]:
    """Return the files of a model with that signature."""
    signature = f"signature:\n  inputs: '{json.dumps(inputs)}'\n  params: null\n" if inputs else ""
    head = "flavors:\n  python_function: {loader_module: mlflow.sklearn, model_path: model.pkl}\n"
    return {"MLmodel": (head + signature).encode(), "model.pkl": b"\x80\x04not really"}


class Place:
    """The project vision, in which `api` predicts."""

    def __init__(self, api: Api, store: Store, machine: Machine) -> None:
        self.api, self.store, self.machine = api, store, machine
        self.register()
        self.push()

    def register(self, inputs: Sequence[Mapping[str, Any]] | None = INPUTS) -> int:
        """Register a version of `prices`; returns its number."""
        run_id = self.store.run(files=model_files(inputs))
        body = {"source": f"runs:/{run_id}/model"}
        answer = self.api.post("projects/vision/models/prices/versions", body)
        assert answer.status_code == 201, answer.content
        return int(json_of(answer)["version"])

    def push(self, content: bytes = DATA, name: str = "sales", path: str = "sales.csv") -> int:
        """Push a version of a dataset; returns its number."""
        made = push(self.api, {path: content}, name)
        assert made["state"] == "ready", made
        return int(made["number"])

    def ask(self, **changes: Any) -> Any:
        """Ask for a batch prediction; returns the response."""
        body = {"model": "prices", "data": "sales", "output": "predicted", "tier": "small"}
        return self.api.post(AT, body | changes)

    def start(self, **changes: Any) -> str:
        """Start one; returns its id."""
        answer = self.ask(**changes)
        assert answer.status_code == 201, answer.content
        run_passes()
        return str(json_of(answer)["id"])

    def shown(self, prediction: str) -> dict[str, Any]:
        """Return one as the API shows it."""
        answer = self.api.get(f"{AT}/{prediction}")
        assert answer.status_code == 200, answer.content
        document: dict[str, Any] = json_of(answer)
        return document

    def draft(
        self, content: bytes = b"id,prediction\nr1,3\nr2,7.5\n", name: str = "predicted"
    ) -> str:
        """Upload a draft as the program does; returns its id."""
        at = begin(self.api, name)
        fill(self.api, at, {"predictions.csv": content})
        return at.rpartition("/")[2]

    def end(self, prediction: str, reason: str = "completed") -> None:
        """Let the job run and end."""
        workload = Workload.objects.get(pk=prediction)
        desired_for(node=self.machine.node)
        run(workload)
        finish(workload, reason, exit_code=0 if reason == "completed" else 1)


def own(prediction: str) -> Api:
    """Return the API as the job reaches it."""
    workload = Workload.objects.get(pk=prediction)
    return Api(token_of(workload.pk, workload.epoch))


def result(draft: str, **changes: Any) -> dict[str, Any]:
    """Return what the program reports."""
    counted = {"rows": 2, "failed_rows": 0, "seconds": 0.5, "rows_per_call": 64}
    return {"draft": draft, "batching": "2 rows gave the same predictions."} | counted | changes
