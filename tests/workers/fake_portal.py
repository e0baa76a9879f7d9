"""A portal for agents to talk to: real HTTP, the bodies of `slipway.schemas.agent`, no database.

It keeps to the letter what the schemas promise (idempotent reports, log offsets, long poll) and
writes down every breach by the agent in `breaches`.
"""

import hashlib
import io
import json
import tarfile
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pydantic

from slipway.schemas.agent import (
    DesiredState,
    DesiredTask,
    EnvironmentReport,
    EnvironmentSpec,
    GangMember,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinResponse,
    Rendezvous,
    Reports,
    ReportsAnswer,
    Sample,
    Samples,
    TaskKey,
    TaskReport,
    TaskSpec,
)
from slipway.schemas.workloads import ReasonCode, Resources

GIB = 1024**3
JOIN_TOKEN = "slj_once"
LASTING_TOKEN = "slj_often"
_KEPT_LOG_BYTES = 64 * 1024 * 1024
Key = tuple[str, int]


def make_spec(*argv: str, **changes: Any) -> TaskSpec:
    """A small task; say what is different."""
    fields: dict[str, Any] = {
        "backend": "process",
        "argv": list(argv),
        "resources": Resources(cpu_millis=2000, memory_bytes=2 * GIB),
        "persistent_key": "run-1",
        "stop_grace_s": 2.0,
        "world_size": changes.get("procs", 1),
        **changes,
    }
    return TaskSpec(**fields)


def make_snapshot(files: dict[str, str]) -> bytes:
    """A tar of the files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


class Problem(Exception):
    """Answer with this status and code."""

    def __init__(self, status: int, code: str, detail: str = "") -> None:
        super().__init__(detail or code)
        self.status = status
        self.code = code


class PortalState:
    """Everything the portal knows. Tests change it under `changed` and read it freely."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.join_tokens = {JOIN_TOKEN, LASTING_TOKEN}
        self.nodes: dict[str, str] = {}
        self.version = 1
        self.tasks: dict[Key, DesiredTask] = {}
        self.places: dict[Key, str] = {}
        self.prewarm: list[str] = []
        self.builds_ahead: list[dict[str, str]] = []
        self.heartbeat_s = 0.2
        self.lease_s = 30.0
        self.fenced: list[TaskKey] = []
        self.stale: set[Key] = set()
        self.heartbeats: list[Heartbeat] = []
        self.reports: dict[Key, list[TaskReport]] = defaultdict(list)
        self.logs: dict[tuple[str, int, int], bytearray] = defaultdict(bytearray)
        self.log_sizes: dict[tuple[str, int, int], int] = defaultdict(int)
        self.ended_logs: set[tuple[str, int, int]] = set()
        self.samples: list[Sample] = []
        self.snapshots: dict[str, bytes] = {}
        self.checkpoints: dict[tuple[str, int], bytes] = {}
        # What is answered instead of a checkpoint, once each, before it is given as it is.
        self.bad_checkpoints: list[bytes] = []
        self.environments: dict[str, EnvironmentSpec] = {}
        self.archives: dict[str, bytes] = {}
        self.environment_reports: dict[str, list[EnvironmentReport]] = defaultdict(list)
        self.refused_tasks: set[str] = set()
        self.breaches: list[str] = []
        self.polls = 0

    def bump(self) -> None:
        """The desired state has changed; held polls are answered."""
        with self.changed:
            self.version += 1
            self.changed.notify_all()

    def add_snapshot(self, files: dict[str, str]) -> str:
        """Store a code snapshot; answers its digest."""
        data = make_snapshot(files)
        digest = hashlib.sha256(data).hexdigest()
        self.snapshots[digest] = data
        return digest

    def want(
        self,
        task_id: str,
        spec: TaskSpec,
        *,
        epoch: int = 1,
        node: str = "node-1",
        **changes: Any,
    ) -> Key:
        """List a task to be started on a node, in place of its earlier epochs."""
        fields: dict[str, Any] = {
            "task_id": task_id,
            "workload_id": f"w-{task_id}",
            "epoch": epoch,
            "index": 0,
            "action": "start",
            "spec": spec,
            **changes,
        }
        with self.changed:
            self.tasks = {key: task for key, task in self.tasks.items() if key[0] != task_id}
            self.tasks[(task_id, epoch)] = DesiredTask(**fields)
            self.places[(task_id, epoch)] = node
        self.bump()
        return task_id, epoch

    def run(self, task_id: str, script: str, *arguments: str, **changes: Any) -> Key:
        """Want a task that runs the text of one script."""
        digest = self.add_snapshot({"train.py": script})
        spec = make_spec("python", "train.py", *arguments, snapshot=digest, **changes)
        return self.want(task_id, spec)

    def stop(self, key: Key, reason: ReasonCode = ReasonCode.USER) -> None:
        """List a task to be stopped."""
        stopping = {"action": "stop", "stop_reason": reason}
        self.tasks[key] = self.tasks[key].model_copy(update=stopping)
        self.bump()

    def forget(self, key: Key) -> None:
        """List a task no more."""
        self.tasks.pop(key, None)
        self.bump()

    def introduce(self, keys: list[Key]) -> None:
        """Hand the addresses that the tasks of a gang reported to all of them, in this order."""
        reports = [
            next(report for report in self.reports[key] if report.kind == "rendezvous")
            for key in keys
        ]
        assert reports[0].rendezvous is not None
        members = [report.member for report in reports if report.member is not None]
        for key in keys:
            self.meet(key, reports[0].rendezvous, members)

    def meet(self, key: Key, rendezvous: Rendezvous, members: list[GangMember]) -> None:
        """Hand a task the place where its gang meets, and the addresses of its tasks."""
        known = {"rendezvous": rendezvous, "members": members}
        self.tasks[key] = self.tasks[key].model_copy(update=known)
        self.bump()

    def kinds(self, key: Key) -> list[str]:
        """Kinds of the reports that came, in order."""
        return [report.kind for report in self.reports[key]]

    def end_of(self, key: Key) -> TaskReport | None:
        """The report of the end, if it came."""
        return next((report for report in self.reports[key] if report.kind == "ended"), None)

    def log_of(self, key: Key, rank: int = 0) -> str:
        """Output of one rank as far as it came."""
        return bytes(self.logs[(*key, rank)]).decode(errors="replace")


class FakePortal:
    """The server. `stop` makes the portal unreachable, `start` brings it back at the same place."""

    def __init__(self) -> None:
        self.state = PortalState()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        """Where agents find it."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, at the port of the first time."""
        handler = type("Handler", (_Handler,), {"state": self.state})
        self._server = _Server(("127.0.0.1", self._port), handler)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections from now on and drop those that are open."""
        assert self._server is not None
        assert self._thread is not None
        self._server.shutdown()
        self._thread.join()
        self._server.drop_all()
        self._server.server_close()
        self.state.bump()
        self._server = None

    def close(self) -> None:
        """Stop, if it runs."""
        if self._server is not None:
            self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, *arguments: Any) -> None:
        self._open: set[Any] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def drop_all(self) -> None:
        for request in list(self._open):
            self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is killed in the middle of a call is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: PortalState
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_PUT(self) -> None:
        self._answer(self._put)

    def _answer(self, act: Any) -> None:
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        length = int(self.headers.get("Content-Length", 0))
        self.body = self.rfile.read(length)
        if len(self.body) < length:  # the agent was killed while it sent this
            self.close_connection = True
            return
        prefix = "/api/agent/v1/"
        try:
            if not parts.path.startswith(prefix):
                raise Problem(404, "not_found")
            steps = parts.path.removeprefix(prefix).split("/")
            if steps != ["join"]:
                self._check_token()
            self._send(200, act(steps))
        except Problem as problem:
            self._send_problem(problem)
        except pydantic.ValidationError as error:
            self.state.breaches.append(f"{self.command} {self.path}: {error}")
            self._send_problem(Problem(422, "invalid", str(error)))

    def _check_token(self) -> None:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.state.nodes:
            raise Problem(401, "not_authenticated")
        self.node = self.state.nodes[token]

    def _send(self, status: int, answer: Any) -> None:
        if isinstance(answer, pydantic.BaseModel):
            answer = answer.model_dump_json().encode()
        elif not isinstance(answer, bytes):
            answer = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _send_problem(self, problem: Problem) -> None:
        body = {"type": "about:blank", "title": problem.code, "status": problem.status}
        self._send(problem.status, {**body, "code": problem.code, "detail": str(problem)})

    # The doors

    def _get(self, steps: list[str]) -> Any:
        match steps:
            case ["desired"]:
                return self._desired(int(self.query["seen"]), float(self.query["wait_s"]))
            case ["snapshots", digest] if digest in self.state.snapshots:
                return self.state.snapshots[digest]
            case ["environments", digest] if digest in self.state.environments:
                return self.state.environments[digest]
            case ["environments", digest, "archives", sha256]:
                if digest in self.state.environments and sha256 in self.state.archives:
                    return self.state.archives[sha256]
            case ["checkpoints", task_id, _, step]:
                if self.state.bad_checkpoints:
                    return self.state.bad_checkpoints.pop()
                checkpoint = self.state.checkpoints.get((task_id, int(step)))
                if checkpoint is not None:
                    return checkpoint
        raise Problem(404, "not_found", f"there is no {'/'.join(steps)}")

    def _desired(self, seen: int, wait_s: float) -> DesiredState:
        state = self.state
        with state.changed:
            state.polls += 1
            state.changed.wait_for(lambda: state.version != seen, timeout=wait_s)
            return DesiredState.model_validate(
                {
                    "version": state.version,
                    "tasks": [
                        task.model_dump()
                        for key, task in state.tasks.items()
                        if state.places[key] == self.node
                    ],
                    "prewarm": state.prewarm,
                    "builds_ahead": state.builds_ahead,
                }
            )

    def _post(self, steps: list[str]) -> Any:
        match steps:
            case ["join"]:
                return self._join(Join.model_validate_json(self.body))
            case ["heartbeat"]:
                return self._heartbeat(Heartbeat.model_validate_json(self.body))
            case ["reports"]:
                return self._reports(Reports.model_validate_json(self.body))
            case ["samples"]:
                self.state.samples.extend(Samples.model_validate_json(self.body).samples)
                return {}
            case ["environments", digest, "reports"]:
                return self._environment_report(
                    digest, EnvironmentReport.model_validate_json(self.body)
                )
        raise Problem(404, "not_found")

    def _join(self, join: Join) -> JoinResponse:
        with self.state.changed:
            if join.join_token not in self.state.join_tokens:
                raise Problem(401, "join_token_refused", "The join token is used or unknown.")
            if join.join_token == JOIN_TOKEN:
                self.state.join_tokens.discard(join.join_token)
            token = f"sln_{join.name}"
            self.state.nodes[token] = join.name
        return JoinResponse(node_id=f"nod_{join.name}", node_token=token)

    def _heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        self.state.heartbeats.append(heartbeat)
        return HeartbeatAnswer(
            heartbeat_s=self.state.heartbeat_s,
            lease_s=self.state.lease_s,
            fenced=self.state.fenced,
        )

    def _reports(self, reports: Reports) -> ReportsAnswer:
        state = self.state
        stale: list[TaskKey] = []
        accepted = 0
        with state.changed:
            for report in reports.reports:
                key = (report.task_id, report.epoch)
                if key in state.stale:
                    stale.append(TaskKey(task_id=report.task_id, epoch=report.epoch))
                    continue
                if report.task_id in state.refused_tasks:
                    raise Problem(422, "invalid", "This task's reports are refused by the test.")
                known = state.reports[key]
                if report.sequence == len(known) + 1:
                    known.append(report)
                    accepted += 1
                elif report.sequence > len(known) + 1:
                    state.breaches.append(f"{key} skipped from {len(known)} to {report.sequence}")
                elif known[report.sequence - 1] != report:
                    state.breaches.append(f"{key} changed its report {report.sequence}")
        return ReportsAnswer(accepted=accepted, stale=stale)

    def _environment_report(self, digest: str, report: EnvironmentReport) -> Any:
        every = self.state.environment_reports[digest]
        known = [other for other in every if other.project == report.project]
        same = [other for other in known if other.build == report.build]
        expected = sum(len(other.log.encode()) for other in same)
        if known and report.build < known[-1].build:
            self.state.breaches.append(f"environment {digest} went back to {report.build}")
        if report.log_offset > expected:
            self.state.breaches.append(f"environment {digest} skipped to {report.log_offset}")
        if report.log_offset == expected or not report.log:
            every.append(report)
            expected += len(report.log.encode())
        return {"next_offset": expected}

    def _put(self, steps: list[str]) -> Any:
        match steps:
            case ["logs", task_id, epoch, rank]:
                return self._log(task_id, int(epoch), int(rank), int(self.query["offset"]))
            case ["checkpoints", task_id, epoch, step]:
                if (task_id, int(epoch)) in self.state.stale:
                    raise Problem(409, "stale_epoch", "The task has moved on.")
                self.state.checkpoints[task_id, int(step)] = self.body
                return {}
        raise Problem(404, "not_found")

    def _log(self, task_id: str, epoch: int, rank: int, offset: int) -> Any:
        state = self.state
        if (task_id, epoch) in state.stale:
            raise Problem(409, "stale_epoch", "The task has moved on.")
        key = (task_id, epoch, rank)
        size = state.log_sizes[key]
        if offset > size:
            state.breaches.append(f"log {key} skipped from {size} to {offset}")
        elif self.query.get("last") == "true":
            if self.body or offset != size:
                state.breaches.append(f"log {key} of {size} bytes was ended at {offset}")
            state.ended_logs.add(key)
        elif offset + len(self.body) > size:
            if key in state.ended_logs:
                state.breaches.append(f"log {key} went on after its end")
            new = self.body[size - offset :]
            state.log_sizes[key] = size + len(new)
            if len(state.logs[key]) < _KEPT_LOG_BYTES:
                state.logs[key].extend(new)
        return {"next_offset": state.log_sizes[key]}
