"""Real replicas and gateways for tests: processes with folders of their own, and a small portal."""

import hashlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from slipway.schemas.serving import (
    EndpointLimits,
    EndpointRoute,
    GatewayReport,
    GatewaySnapshot,
    KeyRoute,
    ReplicaReport,
    ReplicaRoute,
    ReplicaSpec,
    ReplicaState,
    RevisionRoute,
)
from tests.workers.machines import ROOT, eventually

KEY = "slk_0123456789abcdef0123456789abcdef"
SECRET = "a secret between gateway and replica"
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}",
    "OMP_NUM_THREADS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def linear_model(folder: Path, *, slope: float = 2.0, columns: int = 4) -> Path:
    """Write an ONNX model that sums `columns` numbers and multiplies by `slope`."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = np.full((columns, 2), slope, np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", columns])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    return folder


class Process:
    """A process of ours, its log, and its end."""

    def __init__(self, log: Path, *command: str, environment: dict[str, str]) -> None:
        self.log = log
        with log.open("ab") as file:
            self.child = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """End it as a power cut would."""
        self.child.kill()
        self.child.wait(10)

    def stop(self) -> int:
        """End it as an operator would; returns its status."""
        with suppress(ProcessLookupError):
            self.child.send_signal(signal.SIGTERM)
        try:
            return self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it did not stop: {self.log.read_text()[-2000:]}") from None


@dataclass
class Replica:
    """A replica that was started, and how the gateway finds it."""

    process: Process
    spec: ReplicaSpec
    address: str

    @property
    def route(self) -> ReplicaRoute:
        """The replica as a snapshot names it."""
        return ReplicaRoute(id=self.spec.replica_id, address=self.address, secret=self.spec.secret)


class Portal:
    """The portal's side of the data plane: hands out a snapshot, keeps reports."""

    def __init__(self) -> None:
        self.snapshot = GatewaySnapshot(version=0)
        self.reports: list[GatewayReport] = []
        self.replicas: dict[str, list[ReplicaReport]] = {}
        self.polls = 0
        self.breaches: list[str] = []
        self.answers = threading.Event()
        self.answers.set()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Answer, at the port of the first time."""
        handler = type("Handler", (_PortalHandler,), {"portal": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Be away."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def serve(self, *endpoints: EndpointRoute) -> None:
        """Hand out these endpoints from now on."""
        version = self.snapshot.version + 1
        self.snapshot = GatewaySnapshot(version=version, endpoints=list(endpoints))

    def replica_states(self, name: str) -> list[ReplicaState]:
        """What a replica said it was, in order, without repetitions."""
        return list(dict.fromkeys(report.state for report in self.replicas.get(name, [])))


class _PortalHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    portal: Portal

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""

    def do_GET(self) -> None:
        portal = self.portal
        portal.polls += 1
        portal.answers.wait()
        if self.headers.get("Authorization") != "Bearer gateway-token":
            self._answer(401)
            return
        etag = f'"{portal.snapshot.version}"'
        if self.headers.get("If-None-Match") == etag:
            self._answer(304)
            return
        self._answer(200, portal.snapshot.model_dump_json().encode(), etag)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            if self.path == "/api/gateway/v1/reports":
                self.portal.reports.append(GatewayReport.model_validate_json(body))
            else:
                report = ReplicaReport.model_validate_json(body)
                self.portal.replicas.setdefault(report.replica_id, []).append(report)
        except ValueError as error:
            self.portal.breaches.append(str(error))
        self._answer(204)

    def _answer(self, status: int, body: bytes = b"", etag: str = "") -> None:
        self.send_response(status)
        if etag:
            self.send_header("ETag", etag)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@dataclass
class Answer:
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Plane:
    """A portal, replicas and a gateway, in one folder."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sl-"))
        self.portal = Portal()
        self.processes: list[Process] = []
        self.gateway: Process | None = None
        self.port = 0
        self.options: tuple[str, ...] = ()
        (self.folder / "token").write_text("gateway-token")

    @property
    def data_dir(self) -> Path:
        """The gateway's folder."""
        return self.folder / "gateway"

    @property
    def predictions_dir(self) -> Path:
        """Where Parquet goes."""
        return self.data_dir / "predictions"

    def replica(self, name: str = "rep-1", *, wait: bool = True, **changes: Any) -> Replica:
        """Start a replica of the linear model, or of what `changes` say."""
        values: dict[str, Any] = {
            "replica_id": name,
            "endpoint_id": "ep-1",
            "endpoint": "digits",
            "revision_id": "rev-1",
            "model": "linear",
            "model_version": "1",
            "format": "onnx",
            "entry": "model.onnx",
            "listen": f"unix:{self.folder / name}.sock",
            "secret": SECRET,
            "report_url": f"{self.portal.url}/replicas/{name}",
            "token": "replica-token",
        }
        if "model_dir" not in changes:
            values["model_dir"] = str(linear_model(self.folder / "models" / "linear"))
        spec = ReplicaSpec.model_validate(values | changes)
        process = Process(
            self.folder / f"{name}.log",
            "workers.model_server",
            environment=ENVIRONMENT | {"SLIPWAY_REPLICA": spec.model_dump_json()},
        )
        self.processes.append(process)
        replica = Replica(process, spec, spec.listen)
        if wait:
            replica.address = self.ready(name)
        return replica

    def ready(self, name: str) -> str:
        """Wait until a replica is ready; returns its address."""

        def look() -> str | None:
            reports = self.portal.replicas.get(name, [])
            if reports and reports[-1].state == ReplicaState.FAILED:
                raise AssertionError(reports[-1].reason)
            return reports[-1].address if reports else None

        return eventually(look, within_s=60, what=f"{name} becomes ready")

    def start_gateway(self, *options: str) -> None:
        """Start the gateway; it answers when this returns."""
        log = self.folder / "gateway.log"
        before = log.stat().st_size if log.exists() else 0
        self.gateway = Process(
            log,
            *("workers.gateway", "--data-dir", str(self.data_dir), "--port", str(self.port)),
            *("--portal-url", self.portal.url, "--token-file", str(self.folder / "token")),
            *("--public-url", "http://a"),
            *(*self.options, *options),
            environment=ENVIRONMENT,
        )
        self.processes.append(self.gateway)

        def look() -> int:
            output = log.read_text()[before:]
            _, _, rest = output.partition("listening on http://127.0.0.1:")
            return int(rest.split("\n")[0]) if "\n" in rest else 0

        self.port = eventually(look, what="the gateway listens")

    def serve(self, *replicas: Replica, **changes: Any) -> EndpointRoute:
        """Have the portal serve the endpoint `digits` from replicas, and wait until it does."""
        revisions: dict[str, RevisionRoute] = {}
        for replica in replicas:
            spec = replica.spec
            revision = revisions.setdefault(
                spec.revision_id,
                RevisionRoute(
                    id=spec.revision_id,
                    model=spec.model,
                    model_version=spec.model_version,
                    weight=100,
                ),
            )
            revision.replicas.append(replica.route)
        route = endpoint(list(revisions.values()), **changes)
        self.portal.serve(route)
        if self.gateway is not None and replicas:
            self.until_in_force()
            eventually(lambda: self.get("/v1/digits/ping").status == 200, what="it serves")
        return route

    def until_in_force(self) -> None:
        """Wait until the gateway serves the portal's snapshot."""
        log, text = (
            self.folder / "gateway.log",
            f"serving snapshot {self.portal.snapshot.version}\n",
        )
        eventually(lambda: text in log.read_text(), what="snapshot in force")

    def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        key: str | None = KEY,
        headers: dict[str, str] | None = None,
        connection: http.client.HTTPConnection | None = None,
    ) -> Answer:
        """Ask the gateway."""
        used = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {} if key is None else {"Authorization": f"Bearer {key}"}
        used.request(method, path, body or None, sent | (headers or {}))
        response = used.getresponse()
        headers_found = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(response.status, headers_found, response.read())
        if connection is None:
            used.close()
        return answer

    def get(self, path: str, *, key: str | None = KEY) -> Answer:
        """Ask with GET."""
        return self.call("GET", path, key=key)

    def predict(self, rows: Any, path: str = "/v1/digits/predict", **options: Any) -> Answer:
        """Ask for predictions on `inputs`."""
        return self.call("POST", path, json.dumps({"inputs": rows}).encode(), **options)

    def close(self) -> None:
        """Leave nothing."""
        for process in self.processes:
            if process.child.poll() is None:
                process.kill()
        self.portal.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert not self.portal.breaches


def endpoint(revisions: list[RevisionRoute], **changes: Any) -> EndpointRoute:
    """An endpoint named digits with one key."""
    values: dict[str, Any] = {
        "id": "ep-1",
        "name": "digits",
        "revisions": revisions,
        "keys": [key_route(KEY)],
        "limits": EndpointLimits(),
    }
    return EndpointRoute.model_validate(values | changes)


def key_route(text: str, name: str = "key-1", **changes: Any) -> KeyRoute:
    """A key as a snapshot names it."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return KeyRoute.model_validate({"id": name, "sha256": digest} | changes)


@contextmanager
def plane() -> Iterator[Plane]:
    """A data plane of its own, gone afterwards."""
    dataplane = Plane()
    try:
        yield dataplane
    finally:
        dataplane.close()
