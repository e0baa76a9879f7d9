"""A portal with MLflow's server beside it, for tests that speak MLflow's REST."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from portal.config.env import read_env
from portal.config.tracking_server import socket_of, tracking_spec
from tests.portals import RunningPortal, running_portal
from tests.processes import Program, wait_for


class TrackingPortal:
    """A running portal, MLflow's server beside it, and a project of each of its people."""

    def __init__(self, portal: RunningPortal) -> None:
        self.portal = portal
        self.socket = socket_of(portal.installation.data_dir)
        self.projects: dict[str, str] = {}
        for name in ("alice", "charlie"):
            with portal.client(name) as client:
                made = client.post("/projects", json={"name": f"{name} lab"})
                assert made.status_code == 201, made.text
                self.projects[name] = made.json()["slug"]
        self.server = self.start_server()

    def start_server(self) -> Program:
        """Start MLflow's server and wait until it answers."""
        at = self.portal.installation
        spec = tracking_spec(read_env(at.environ, Path(os.devnull)), at.environ)
        program = at.start(*spec.argv[1:], **spec.env)
        wait_for(self.answers, "answer of MLflow's server", within_s=180)
        return program

    def answers(self) -> bool:
        """Whether MLflow's server answers."""
        transport = httpx.HTTPTransport(uds=str(self.socket))
        with contextlib.suppress(httpx.TransportError), httpx.Client(transport=transport) as client:
            return client.get("http://tracking/health", headers=self.credentials).is_success
        return False

    @property
    def secret(self) -> str:
        """The secret by which the portal authenticates to MLflow's server."""
        key = self.portal.installation.data_dir / "keys" / "tracking.key"
        return key.read_text().strip() if key.exists() else "no-secret"

    @property
    def credentials(self) -> dict[str, str]:
        """The header that carries the secret."""
        return {"Authorization": f"Bearer {self.secret}"}

    def uri(self, name: str) -> str:
        """MLFLOW_TRACKING_URI of a person's project."""
        return f"{self.portal.url}/mlflow/{self.projects[name]}"

    def client(self, name: str, **headers: str) -> "Rest":
        """Return a client of MLflow's REST in the person's own project."""
        return Rest(
            self.uri(name), {"Authorization": f"Bearer {self.portal.tokens[name]}"} | headers
        )


class Rest:
    """MLflow's REST as an unmodified client sees it, without the client."""

    def __init__(self, uri: str, headers: dict[str, str]) -> None:
        self.http = httpx.Client(base_url=uri, headers=headers, timeout=60)

    def call(self, method: str, path: str, **what: Any) -> httpx.Response:
        """Send a request; `path` is below /api/2.0/mlflow unless it begins with a slash."""
        address = path if path.startswith("/") else f"/api/2.0/mlflow/{path}"
        return self.http.request(method, address, **what)

    def post(self, path: str, content: Any) -> Any:
        """Send JSON and return the JSON of a good answer."""
        answer = self.call("POST", path, json=content)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def get(self, path: str, **query: Any) -> Any:
        """Ask and return the JSON of a good answer."""
        answer = self.call("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def new_experiment(self, name: str) -> str:
        """Make an experiment; returns its id."""
        return str(self.post("experiments/create", {"name": name})["experiment_id"])

    def new_run(self, experiment_id: str = "0") -> str:
        """Begin a run; returns its id."""
        body = {"experiment_id": experiment_id, "start_time": time.time_ns() // 1_000_000}
        return str(self.post("runs/create", body)["run"]["info"]["run_id"])

    def write_model(self, run_id: str, folder: str = "model") -> None:
        """Write the file of a model among the artifacts of a run."""
        uri = str(self.get("runs/get", run_id=run_id)["run"]["info"]["artifact_uri"])
        place = f"{uri.removeprefix('mlflow-artifacts:/').strip('/')}/{folder}/MLmodel"
        address = f"/api/2.0/mlflow-artifacts/artifacts/{place}"
        answer = self.call("PUT", address, content=b"flavors: {}\n")
        assert answer.status_code == 200, answer.text


@contextlib.contextmanager
def tracking_portal(folder: Path, **environ: str) -> Iterator[TrackingPortal]:
    """Yield a portal with MLflow's server beside it."""
    with running_portal(folder, command=("portal",), **environ) as portal:
        yield TrackingPortal(portal)
