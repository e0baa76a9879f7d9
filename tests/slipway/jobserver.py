"""A small real server that speaks the contract of training jobs, and breaks it on purpose."""

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from slipway.schemas.training import LOG_READ_BYTES, JobOut, JobProgress, LogPiece

PROJECT = "vision"
Key = tuple[int, int]  # attempt, rank


@dataclass
class Fault:
    """What goes wrong in one connection of `follow`, or of `logs`."""

    status: int = 0  # answered instead
    cut_after_bytes: int = -1  # the connection breaks there
    close_after_events: int = -1  # or ends there, as if that were all
    ignores_last_id: bool = False  # everything again from the beginning
    skips_bytes: int = 0  # of the first log event


@dataclass
class LiveJob:
    """A job whose life the test drives."""

    document: dict[str, Any]
    logs: dict[Key, bytearray] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    is_told: bool = True  # whether `end` follows a final state


@dataclass
class TrainingServer:
    """A server with one project, `vision`; a test reads what came in and sets what goes out."""

    url: str = ""
    jobs: dict[str, LiveJob] = field(default_factory=dict)
    snapshots: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    received: list[Any] = field(default_factory=list)  # JSON bodies, as long as `requests`
    bodies: list[dict[str, Any]] = field(default_factory=list)
    follow_faults: list[Fault] = field(default_factory=list)
    log_faults: list[Fault] = field(default_factory=list)
    piece_bytes: int = 65_536
    refusal: tuple[int, dict[str, Any]] | None = None
    answers: dict[str, Any] = field(default_factory=dict)
    packages: dict[str, Any] | None = None  # of a quote
    build_logs: dict[str, bytes] = field(default_factory=dict)  # by node
    changed: threading.Condition = field(default_factory=threading.Condition)
    log_offset: int = 0

    def add_job(self, job_id: str = "wl_1", **changes: Any) -> LiveJob:
        """Make a job as it is right after it was submitted."""
        job = LiveJob(job_document(job_id, **changes))
        with self.changed:
            self.jobs[job_id] = job
        return job

    def set(self, job_id: str = "wl_1", **changes: Any) -> None:
        """Change how a job stands; names of the workload go there, others to the job."""
        with self.changed:
            change(self.jobs[job_id].document, **changes)
            self.changed.notify_all()

    def log(self, data: bytes, *, job_id: str = "wl_1", rank: int = 0, attempt: int = 1) -> None:
        """Add to a log."""
        with self.changed:
            self.jobs[job_id].logs.setdefault((attempt, rank), bytearray()).extend(data)
            self.changed.notify_all()

    def sample(self, job_id: str = "wl_1", **sample: Any) -> None:
        """Add a sample of use."""
        with self.changed:
            self.jobs[job_id].samples.append(
                {"at": "2026-11-20T12:00:00Z", "task": 0, "cpu_percent": 1.0, "memory_bytes": 1}
                | sample
            )
            self.changed.notify_all()

    def paths(self, method: str) -> list[str]:
        """Return the paths that were asked for, without their queries."""
        return [path.partition("?")[0] for verb, path, _ in self.requests if verb == method]


def job_document(job_id: str, **changes: Any) -> dict[str, Any]:
    """Return a job as JSON."""
    document: dict[str, Any] = {
        "workload": {
            "id": job_id,
            "project": PROJECT,
            "kind": "job",
            "name": "train",
            "state": "queued",
            "explanation": "waits for a free node",
            "tier": "cpu-small",
            "nodes": 1,
            "procs": 1,
            "attempt": 1,
            "priority": 0,
            "submitted_by": "alice@example.org",
            "created_at": "2026-11-20T12:00:00Z",
        },
        "script": "train.py",
        "args": [],
        "params": {},
        "snapshot": {"digest": "0" * 64, "size_bytes": 10240, "files": 1},
        "nano_usd_per_hour": 40_000_000,
        "cost_nano_usd": 0,
    }
    change(document, **changes)
    return document


def change(document: dict[str, Any], **changes: Any) -> None:
    for name, value in changes.items():
        known = JobOut.model_fields.keys() - {"workload"}
        (document if name in known else document["workload"])[name] = value


@contextmanager
def training_server() -> Iterator[TrainingServer]:
    """Serve on a free port until the block ends."""
    state = TrainingServer()
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: TrainingServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay silent."""

    def _answer(self) -> None:
        self.state.requests.append((self.command, self.path, dict(self.headers)))
        self._body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        is_json = self.headers.get("Content-Type") == "application/json"
        self.state.received.append(json.loads(self._body) if is_json else None)
        parts = urlsplit(self.path)
        self._query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        path = parts.path.removeprefix("/api/v1/")
        try:
            self._route(path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815  (their names)

    def _route(self, path: str) -> None:
        state = self.state
        if path in state.answers:
            self._json(state.answers[path])
        elif state.refusal is not None:
            self._json(state.refusal[1], status=state.refusal[0])
        elif re.fullmatch(rf"projects/{PROJECT}/environments/(\w+)/log", path):
            log, offset = state.build_logs[self._query["node"]], int(self._query["offset"])
            self._bytes(log[offset:])
        elif match := re.fullmatch(rf"projects/{PROJECT}/snapshots(?:/(\w+))?", path):
            self._snapshot(match[1])
        elif path == f"projects/{PROJECT}/jobs/quote":
            self.state.bodies.append(json.loads(self._body))
            self._json(
                {
                    "nano_usd_per_hour": 80_000_000,
                    "can_ever_run": True,
                    "would_wait": True,
                    "explanation": "Every node that fits is busy.",
                    "packages": self.state.packages,
                }
            )
        elif path == f"projects/{PROJECT}/jobs":
            self._jobs()
        elif match := re.fullmatch(rf"projects/{PROJECT}/jobs/(\w+)(?:/(\w+))?", path):
            self._job(match[1], match[2])
        else:
            self._missing()

    def _snapshot(self, digest: str | None) -> None:
        if self.command == "POST":
            sha256 = hashlib.sha256(self._body).hexdigest()
            assert self.headers["X-Slipway-Sha256"] == sha256
            assert self.headers["Content-Type"] == "application/octet-stream"
            self.state.snapshots[sha256] = self._body
            self._json({"digest": sha256, "size_bytes": len(self._body), "files": 1}, status=201)
        elif digest in self.state.snapshots:
            self._bytes(self.state.snapshots[digest])
        else:
            self._missing()

    def _jobs(self) -> None:
        if self.command == "GET":
            jobs = [job.document for job in reversed(self.state.jobs.values())]
            self._json({"items": jobs, "next_cursor": None})
            return
        body = json.loads(self._body)
        self.state.bodies.append(body)
        job_id = f"wl_{len(self.state.jobs) + 1}"
        kept = ("script", "args", "params", "strategy", "nodes", "procs", "git")
        job = self.state.add_job(job_id, **{name: body[name] for name in kept if name in body})
        job.document["snapshot"]["digest"] = body["snapshot"]
        self._json(job.document, status=201)

    def _job(self, job_id: str, what: str | None) -> None:
        job = self.state.jobs.get(job_id)
        if job is None:
            self._missing()
        elif what is None:
            self._json(job.document)
        elif what == "cancel":
            self.state.set(job_id, state="stopped", explanation="stopped by alice", reason="user")
            self._json(job.document)
        elif what == "clone":
            body = json.loads(self._body)
            self.state.bodies.append(body)
            clone = self.state.add_job(f"wl_{len(self.state.jobs) + 1}", cloned_from=job_id)
            self._json(clone.document, status=201)
        elif what == "logs":
            self._log(job)
        elif what == "follow":
            self._follow(job)
        else:
            self._missing()

    def _log(self, job: LiveJob) -> None:
        attempt = int(self._query.get("attempt", job.document["workload"]["attempt"]))
        key = (attempt, int(self._query.get("rank", "0")))
        limit = int(self._query.get("limit", LOG_READ_BYTES))
        assert limit <= LOG_READ_BYTES
        log = bytes(job.logs.get(key, b""))
        offset = max(int(self._query.get("offset", "0")), self.state.log_offset)
        fault = self.state.log_faults.pop(0) if self.state.log_faults else Fault()
        if fault.status:
            self._json(_problem(fault.status), status=fault.status)
            return
        part = log[offset : offset + limit]
        headers = {
            "X-Log-Attempt": str(attempt),
            "X-Log-Size": str(len(log)),
            "X-Log-Offset": str(offset),
        }
        self._bytes(part, cut_after=fault.cut_after_bytes, headers=headers)

    def _follow(self, job: LiveJob) -> None:
        fault = self.state.follow_faults.pop(0) if self.state.follow_faults else Fault()
        if fault.status:
            self._json(_problem(fault.status), status=fault.status)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent_bytes = events = 0
        for event in self._events(job, fault):
            if 0 <= fault.cut_after_bytes < sent_bytes + len(event):
                event = event[: fault.cut_after_bytes - sent_bytes]
                self.wfile.write(b"%x\r\n%s" % (len(event) + 100, event))
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
            sent_bytes += len(event)
            events += not event.startswith(b":")
            if events == fault.close_after_events:
                break
        self.wfile.write(b"0\r\n\r\n")

    def _events(self, job: LiveJob, fault: Fault) -> Iterator[bytes]:
        """Yield events, waiting for what is new, until the job has ended and all is told."""
        last = "" if fault.ignores_last_id else self.headers.get("Last-Event-ID", "")
        seen: dict[str, Any] = json.loads(last) if last else {"state": "", "samples": 0}
        skips = fault.skips_bytes
        query = {name: self._query.get(name) for name in ("rank", "attempt")}
        while True:
            events: list[bytes] = []
            with self.state.changed:
                progress = JobProgress.model_validate(job.document).model_dump_json()
                if seen["state"] != (mark := hashlib.sha1(progress.encode()).hexdigest()):  # noqa: S324
                    seen["state"] = mark
                    events.append(_event("state", progress, seen))
                for (attempt, rank), log in sorted(job.logs.items()):
                    if query["rank"] not in (None, str(rank)) or self._query.get("logs") == "false":
                        continue
                    place = seen.get(f"{attempt}.{rank}", 0) + skips
                    skips = 0
                    while place < len(log):
                        data = bytes(log[place : place + self.state.piece_bytes])
                        piece = LogPiece.of(attempt=attempt, rank=rank, offset=place, data=data)
                        place += len(data)
                        seen[f"{attempt}.{rank}"] = place
                        events.append(_event("log", piece.model_dump_json(exclude_none=True), seen))
                for sample in job.samples[seen["samples"] :]:
                    seen["samples"] += 1
                    events.append(_event("sample", json.dumps(sample), seen))
                is_over = job.document["workload"]["state"] in (
                    "succeeded",
                    "failed",
                    "stopped",
                    "lost",
                )
                if not events and not is_over:
                    self.state.changed.wait(0.5)
            yield from events or [b": still here\n\n"]
            if is_over:
                if job.is_told:
                    yield _event("end", "{}", seen)
                return

    def _json(self, body: object, *, status: int = 200) -> None:
        kind = "application/problem+json" if status >= 400 else "application/json"
        self._bytes(json.dumps(body).encode(), status=status, kind=kind)

    def _bytes(
        self,
        content: bytes,
        *,
        status: int = 200,
        kind: str = "application/octet-stream",
        cut_after: int = -1,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if cut_after >= 0:
            self.close_connection = True
            content = content[:cut_after]
        self.wfile.write(content)

    def _missing(self) -> None:
        self._json(_problem(404), status=404)


def _event(name: str, data: str, seen: dict[str, Any]) -> bytes:
    return f"event: {name}\nid: {json.dumps(seen)}\ndata: {data}\n\n".encode()


def _problem(status: int) -> dict[str, Any]:
    return {"type": "x", "title": "x", "status": status, "detail": "No.", "code": "refused"}


def wait_until(condition: Any, *, seconds: float = 20.0) -> None:
    """Wait until `condition()` holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
