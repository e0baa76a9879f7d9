"""Endpoints on real processes: a Slipway, models in its registry, clients of the gateway."""

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for
from tests.tracking import Rest

# A busy machine may keep a database waiting; the SDK waits, too.
_BUSY_S = 30.0
# Where `slipway.track.data` logs a sample of the training data.
SAMPLE = "slipway/data/training.json"
# A model that multiplies, as MLflow loads one: its loader is code that came with it.
_MLMODEL = """flavors:
  python_function:
    code: code
    data: facts.json
    loader_module: multiplies_{name}
model_uuid: {name}
signature:
  inputs: '[{{"type": "tensor", "tensor-spec": {{"dtype": "float64", "shape": [-1, {width}]}}}}]'
  outputs: '[{{"type": "tensor", "tensor-spec": {{"dtype": "float64", "shape": [-1, {width}]}}}}]'
  params: null
"""
_CODE = """
import json, os, signal, sys
class Model:
    def __init__(self, facts):
        self.facts = facts
        print("loaded", facts, flush=True)
    def predict(self, inputs, params=None):
        if float(inputs[0][0]) == -666.0:
            os.kill(os.getpid(), signal.SIGKILL)
        above = self.facts["refuses_above"]
        if above is not None and float(inputs[0][0]) > above:
            raise ValueError("this model is broken")
        return inputs * self.facts["factor"]
def _load_pyfunc(path):
    with open(path) as file:
        return Model(json.load(file))
"""


class Endpoints:
    """The project vision of a running Slipway: its models, its endpoints, and their gateway.

    `owner` is who has made it and asks for everything.
    """

    def __init__(self, running: RunningPortal, owner: str = "root") -> None:
        self.running, self.owner = running, owner
        self.api = running.client(owner)
        made = self.api.post("/projects", json={"name": "Vision"})
        assert made.status_code == 201, made.text
        self.project = made.json()["id"]
        self.path = f"/projects/{made.json()['slug']}"
        port = running.installation.gateway_port
        self.gateway = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        self.keys: dict[str, str] = {}

    def _answer(self, method: str, path: str, body: Any) -> httpx.Response | None:
        """Return the answer, or None where the database is busy and nothing was changed."""
        answer = self.api.request(method, f"{self.path}/{path}", json=body)
        is_busy = answer.status_code == 503 and answer.json()["code"] == "database_busy"
        return None if is_busy else answer

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the API; returns what it says."""
        answer = wait_for(
            lambda: self._answer(method, path, body), f"{method} {path}", within_s=_BUSY_S
        )
        assert answer is not None
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def register(
        self,
        factor: float,
        *,
        refuses_above: float | None = None,
        golden: float | None = None,
        size_bytes: int = 0,
        requirements: str = "",
        width: int = 2,
    ) -> int:
        """Register a version of `double`; `golden` is by what its golden predictions multiply.

        It takes rows of `width` numbers.
        """
        folder = f"workspaces/{self.project}/models/{uuid.uuid4().hex}"
        settings = {"factor": factor, "refuses_above": refuses_above}
        root = self.write(folder, settings, requirements, width)
        (root / "weights.bin").write_bytes(b"\1" * size_bytes)
        version = self.call(
            "POST", "models/double/versions", {"source": f"mlflow-artifacts:/{folder}"}
        )["version"]
        if golden is not None:
            self.record(int(version), golden)
        return int(version)

    def write(
        self, folder: str, settings: dict[str, Any], requirements: str = "", width: int = 2
    ) -> Path:
        """Write the files of a model where MLflow keeps them; returns the folder."""
        name = uuid.uuid4().hex
        root = self.running.installation.data_dir / "artifacts" / folder
        files = {
            "MLmodel": _MLMODEL.format(name=name, width=width),
            "facts.json": json.dumps(settings),
            f"code/multiplies_{name}.py": _CODE,
            "requirements.txt": requirements,
        }
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return root

    def record(self, version: int, golden: float) -> None:
        """Record golden predictions of a version of `double`."""
        rows = [[1.0, 2.0], [0.5, -1.0]]
        answers = [[golden * value for value in row] for row in rows]
        body = {"inputs": rows, "outputs": answers}
        self.call("PUT", f"models/double/versions/{version}/golden", body)

    def log(self, factor: float, sample: dict[str, Any] | None = None) -> str:
        """Log a model that multiplies to a new run, as an MLflow client does; returns its id.

        `sample` is what `slipway.track.data` would log beside it.
        """
        slug = self.path.rpartition("/")[2]
        token = self.running.tokens[self.owner]
        client = Rest(f"{self.running.url}/mlflow/{slug}", {"Authorization": f"Bearer {token}"})
        run = client.new_run(client.new_experiment(uuid.uuid4().hex))
        place = client.get("runs/get", run_id=run)["run"]["info"]["artifact_uri"]
        folder = urlsplit(place).path.strip("/")
        self.write(f"{folder}/model", {"factor": factor, "refuses_above": None})
        if sample is not None:
            file = self.running.installation.data_dir / "artifacts" / folder / SAMPLE
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(sample))
        return run

    def create(self, name: str, version: int | str, **more: Any) -> Any:
        """Create an endpoint with a key."""
        body = {"name": name, "model": "double", "version": str(version)} | more
        made = self.call("POST", "endpoints", body)
        made_key = self.call("POST", f"endpoints/{name}/keys", {"name": "test"})
        self.keys[name] = made_key["key"]
        return made

    def show(self, name: str) -> Any:
        """Return how an endpoint stands."""
        return self.call("GET", f"endpoints/{name}")

    def story(self, name: str) -> str:
        """Return its story, the newest line first."""
        events = self.call("GET", f"endpoints/{name}/events")["items"]
        return "\n".join(event["message"] for event in events)

    def ask(self, name: str, value: float = 1.0) -> httpx.Response:
        """Ask the gateway for a prediction."""
        return self.gateway.post(
            f"/v1/{name}/predict",
            json={"inputs": [[value, value]]},
            headers={"Authorization": f"Bearer {self.keys[name]}"},
        )

    def factor(self, name: str) -> float | None:
        """Return by what an endpoint multiplies now; None while it does not answer."""
        try:
            answer = self.ask(name)
        except httpx.TransportError:
            return None
        return answer.json()["predictions"][0][0] if answer.status_code == 200 else None

    def until(self, name: str, factor: float, *, within_s: float = 30.0) -> float:
        """Wait until an endpoint multiplies by `factor`; returns how long that took."""
        began = time.monotonic()
        try:
            wait_for(lambda: self.factor(name) == factor, f"answer {factor}", within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(name)}\n{self.running.log()}") from None
        return time.monotonic() - began

    def state(self, name: str, state: str, *, within_s: float = 30.0) -> None:
        """Wait until an endpoint stands there."""
        wait_for(lambda: self.show(name)["state"] == state, f"{name} {state}", within_s=within_s)

    def promote(self, name: str, version: int, **plan: Any) -> Any:
        """Promote a version, once the rollout before it has ended."""
        self.settled(name)
        body = {"model": "double", "version": str(version), "plan": plan or {"bake_s": 0}}
        return self.call("POST", f"endpoints/{name}/promote", body)

    def settled(self, name: str, *, within_s: float = 30.0) -> Any:
        """Wait until no rollout is under way; returns how the last one ended."""

        def look() -> Any:
            rollouts = self.call("GET", f"endpoints/{name}/rollouts")["items"]
            ended = rollouts and rollouts[0]["ended_at"] is not None
            return rollouts[0] if ended else None

        return wait_for(look, f"end of the rollout of {name}", within_s=within_s)


class Load:
    """Clients that ask as fast as they are answered, and what they were answered."""

    def __init__(self, endpoints: Endpoints, name: str, *, clients: int = 4) -> None:
        self.statuses: Counter[int | str] = Counter()
        self.factors: Counter[float] = Counter()
        self._stop = threading.Event()
        port = endpoints.running.installation.gateway_port
        key = endpoints.keys[name]
        self._threads = [
            threading.Thread(target=self._run, args=(f"http://127.0.0.1:{port}", name, key))
            for _ in range(clients)
        ]

    def _run(self, url: str, name: str, key: str) -> None:
        body = b'{"inputs": [[1.0, 1.0]]}'
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
            while not self._stop.is_set():
                try:
                    answer = client.post(f"/v1/{name}/predict", content=body)
                except httpx.TransportError as error:
                    self.statuses[type(error).__name__] += 1
                    continue
                self.statuses[answer.status_code] += 1
                if answer.status_code == 200:
                    self.factors[answer.json()["predictions"][0][0]] += 1

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)


@contextmanager
def running_endpoints(folder: Path, **environ: str) -> Iterator[Endpoints]:
    """Yield a Slipway with a node and a gateway."""
    with running_slipway(folder, node=None, SLIPWAY_EMBEDDED_GATEWAY="true", **environ) as running:
        yield Endpoints(running)
