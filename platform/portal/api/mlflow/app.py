"""The public MLflow API: an ASGI application around the portal's.

A request is allowed when its path is a known route, its token leads to a project, and the route's
policy admits the caller. Then the portal answers it from the tables, or passes it on to MLflow's
server in the name of that project, whatever workspace the client sends.
"""

import asyncio
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import httpx
import structlog
from django.db import Error as DatabaseProblem
from django.db import connections

from portal.accounts.client_address import network_of
from portal.api.mlflow import request_checks
from portal.api.mlflow.answers import FullResponse, Refusal, answer, unavailable
from portal.api.mlflow.artifact_checks import check_artifact
from portal.api.mlflow.audit import record
from portal.api.mlflow.auth import Caller, CallerCache
from portal.api.mlflow.fast_path import NATIVE, TrackingRequest
from portal.api.mlflow.jobs import BEGIN, follow, note_begin, run_for
from portal.api.mlflow.model_sources import complete_source, store_location
from portal.api.mlflow.promotions import CREATE, guarded, note_author
from portal.api.mlflow.routes import READ, MlflowRoute, is_known_path, route_of
from portal.api.mlflow.search_limits import check_searches
from portal.api.mlflow.spans import SPANS, checked_headers, unpacked
from portal.api.mlflow.upstream import LARGEST_FILE, MlflowServer, arriving
from portal.api.throttle import api_throttle, tracking_throttle
from portal.core.db_errors import database_problem
from portal.core.db_patience import Patience, limited_by
from portal.core.errors import RateLimited
from portal.core.metrics import HTTP_REQUESTS, HTTP_SECONDS
from portal.experiments.adapters.mlflow.batches import UnsupportedRequest
from portal.experiments.adapters.mlflow.ownership import default_experiments

log = structlog.get_logger(__name__)
PREFIX = "/mlflow"
_THREADS = 12
_OPEN = frozenset({"/health", "/version"})
# The reported version of the server: clients check whether it is recent enough.
_VERSION = "3.17.2"
# Every MLflow server lists a default experiment, for clients that name none.
_EXPERIMENTS = "/api/2.0/mlflow/experiments/search"
_CREATE_RUN = "/api/2.0/mlflow/runs/create"
_UPDATE_RUN = "/api/2.0/mlflow/runs/update"
_PAGE = re.compile(rf"{PREFIX}(/|/[-a-zA-Z0-9_]+/)?")
Result = TypeVar("Result")


class MlflowApplication:
    """Handles requests below `/mlflow`, and leaves the rest to the portal."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.callers = CallerCache()
        self._upstream = MlflowServer()
        # Separate threads with their own connections, so that a busy training job never uses a
        # thread of the pages.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="mlflow")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request."""
        path = scope.get("path", "")
        is_below = path == PREFIX or path.startswith(f"{PREFIX}/")
        if scope["type"] != "http" or not is_below or _is_page(scope["method"], path):
            await self.app(scope, receive, send)
            return
        await _RequestHandler(self, scope, receive, send).run()

    async def in_thread(self, work: Callable[[], Result], patience: Patience | None) -> Result:
        """Run database work in one of the application's threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, partial(_with_database, work, patience, time.monotonic())
        )

    async def pass_on(self, scope: Any, send: Any, **what: Any) -> int:
        """Pass the request to MLflow's server."""
        return await self._upstream.pass_on(scope, send, **what)


def _is_page(method: str, path: str) -> bool:
    """True for the addresses of MLflow's pages, `/mlflow/` and `/mlflow/<project>/`.

    Its client prints them; the portal leads from there to its own pages.
    """
    return method in ("GET", "HEAD") and _PAGE.fullmatch(path) is not None


def _with_database(
    work: Callable[[], Result], patience: Patience | None, queued_at: float
) -> Result:
    if patience is not None:
        patience.note_queued(time.monotonic() - queued_at)
    try:
        with limited_by(patience):
            return work()
    except DatabaseProblem:
        for connection in connections.all(initialized_only=True):
            connection.close_if_unusable_or_obsolete()
        raise


@dataclass
class _Request:
    """A request with its body. `location` is where the files of a registered version are."""

    path: str
    query: list[tuple[str, str]]
    body: bytes
    content: dict[str, Any] = field(default_factory=dict)
    location: str = ""


class _RequestHandler:
    """The processing of one request."""

    def __init__(self, application: MlflowApplication, scope: Any, receive: Any, send: Any) -> None:
        self.application = application
        self.scope = scope
        self.receive = receive
        self._send = send
        self.status = 0
        self._patience = Patience()
        self.route: MlflowRoute | None = None
        # Runs with the response before the client gets it. Until then the response is held
        # back.
        self.remember: Callable[[bytes], None] | None = None
        self._held: list[Any] = []

    async def send(self, event: Any) -> None:
        """Send an event to the client, and note the status."""
        if self.remember is not None:
            self._held.append(event)
            if event["type"] == "http.response.start" or event.get("more_body"):
                return
            await self._remember()
            held, self._held = self._held, []
        else:
            held = [event]
        for each in held:
            if each["type"] == "http.response.start":
                self.status = each["status"]
            await self._send(each)

    async def _remember(self) -> None:
        """Audit the change of the request once, if it changed anything."""
        remember, self.remember = self.remember, None
        if remember is not None and self._held and self._held[0]["status"] == 200:
            answered = b"".join(event.get("body", b"") for event in self._held)
            # The change is done already, so the response waits for the database.
            await self.application.in_thread(partial(remember, answered), None)

    async def run(self) -> None:
        """Respond in any case, unless a response has begun."""
        began = time.perf_counter()
        try:
            await self._answer()
        except Refusal as refusal:
            await self._refuse(refusal)
        except httpx.ReadError:
            log.info("mlflow_client_disconnected", path=self.scope["path"])
        except DatabaseProblem as error:
            log.warning("mlflow_database", reason=str(error)[:300])
            problem = database_problem(error)
            await self._refuse(unavailable(f"{problem.message} {problem.next_step}"))
        except Exception:
            log.exception("mlflow_failed", path=self.scope["path"])
            await self._refuse(Refusal(500, "INTERNAL_ERROR", "Internal error."))
        name = f"mlflow {self.route.path}" if self.route else "mlflow unmatched"
        HTTP_REQUESTS.labels(self.scope["method"], name, self.status).inc()
        HTTP_SECONDS.labels(name).observe(time.perf_counter() - began)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await self.application.in_thread(work, self._patience)

    async def _refuse(self, refusal: Refusal) -> None:
        if self.status == 0:
            await refusal.as_answer().send(self.send)

    async def _answer(self) -> None:
        path, project = self._place()
        if path in _OPEN and self.scope["method"] in ("GET", "HEAD"):
            text = b"OK" if path == "/health" else _VERSION.encode()
            await FullResponse(200, text, ((b"content-type", b"text/plain"),)).send(self.send)
            return
        if self.route is None:
            raise _unserved(self.scope["method"], path)
        visitor = await self._visitor(project)
        visitor.check(self.route.policy)
        target = request_checks.checked_path(path)
        query = request_checks.parsed_query(self.scope["query_string"], path)
        if self.route.path == SPANS:
            await self._take_spans(visitor, target, query)
        elif self.route.streams:
            check = partial(check_artifact, visitor.project_id, self.route, path, query)
            await self._in_thread(check)
            await self._stream(visitor, target, query)
        else:
            await self._exchange(visitor, path, target, query)

    def _place(self) -> tuple[str, str]:
        """Return MLflow's path, and the project of the URL."""
        rest = self.scope["path"][len(PREFIX) :] or "/"
        method = self.scope["method"]
        self.route = route_of(method, rest)
        if self.route is not None or rest in _OPEN:
            return rest, ""
        project, _, below = rest[1:].partition("/")
        self.route = route_of(method, f"/{below}")
        return f"/{below}", project

    async def _visitor(self, project: str) -> Caller:
        given = dict(self.scope["headers"]).get(b"authorization", b"").decode("latin1")
        if not given:
            raise Refusal(
                401,
                "UNAUTHENTICATED",
                "Set MLFLOW_TRACKING_TOKEN to a token created under Settings → API tokens.",
                ((b"www-authenticate", b"Bearer"),),
            )
        callers = self.application.callers
        known = callers.cached(given, project)
        if known is None:
            known = await self._in_thread(partial(self._recognised, given, project))
        key = known.principal.key
        count = tracking_throttle.note(key)
        if count:
            await self._in_thread(partial(_counted, partial(tracking_throttle.tell, key, count)))
        return known

    def _recognised(self, given: str, project: str) -> Caller:
        """Authenticate the caller. Failures count toward the per-address rate limit."""
        try:
            return self.application.callers.authenticate(given, project)
        except Refusal as refusal:
            if refusal.status == 401:
                _counted(partial(api_throttle.hit, network_of(self.scope)))
            raise

    async def _exchange(
        self, visitor: Caller, path: str, target: str, query: list[tuple[str, str]]
    ) -> None:
        """Read the whole request, answer it here if possible, else pass it on."""
        assert self.route is not None  # noqa: S101  (`_answer` has seen to it)
        body = await request_checks.read_body(self.receive, most=request_checks.LARGEST_JSON)
        route, request = self.route, _Request(path, query, body)
        value = await self._in_thread(partial(self._look, visitor, route, request))
        if isinstance(value, FullResponse):
            await value.send(self.send)
            return

        def remember(answered: bytes) -> None:
            if request.location:
                store_location(visitor.project_id, request.location, answered)
            if route.path == CREATE:
                note_author(visitor, answered)
            if route.audit:
                record(visitor, route.audit, request.content, query)

        self.remember = remember if route.audit or route.path == CREATE else None
        try:
            await self._pass_on(visitor, target, value[1], value[0])
        finally:  # MLflow may have made the change and died before its response was complete
            await self._remember()

    def _look(
        self, visitor: Caller, route: MlflowRoute, request: _Request
    ) -> FullResponse | tuple[bytes, str]:
        """Return the response to a request, or the body and the query to pass on."""
        project_id, query = visitor.project_id, request.query
        check_artifact(project_id, route, request.path, query)
        content = request.content = request_checks.parsed_json(request.body)
        check_searches(content, query)
        changed = request_checks.with_default(project_id, content)
        if route.path == _CREATE_RUN:
            # The token tells who logs. What the client says stays in the tag `mlflow.user`.
            content["user_id"], changed = visitor.principal.user.email, True
            of_job = _run_of_job(visitor, content)
            if of_job is not None:
                return of_job
        if route.path == _UPDATE_RUN:
            note_begin(visitor, content)
        if route.path == _EXPERIMENTS:
            default_experiments.of(project_id)
        if route.path == BEGIN:
            follow(visitor, self.scope, query)
        moved = guarded(visitor, route.method, route.path, content)
        if moved is not None:
            return moved
        handler = NATIVE.get((route.method, route.path)) if route.native else None
        if handler is not None:
            try:
                return handler(TrackingRequest(project_id, query, content, len(request.body)))
            except UnsupportedRequest:
                request_checks.check_numbers(content)
        request_checks.check_sizes(content, query)
        if route.cites:
            request_checks.check_citations(route, project_id, content)
        if route.path == CREATE:
            request.location, changed = complete_source(project_id, content), True
        passed = request_checks.as_bytes(content) if changed else request.body
        return passed, request_checks.query_with_default(project_id, query)

    async def _stream(self, visitor: Caller, target: str, query: list[tuple[str, str]]) -> None:
        """Pass a body on as it arrives."""
        body = arriving(self.receive, most=LARGEST_FILE)
        await self._pass_on(visitor, target, request_checks.joined(query), body)

    async def _take_spans(self, visitor: Caller, target: str, query: list[tuple[str, str]]) -> None:
        """Pass spans on after checking that they belong to the project."""
        given = dict(self.scope["headers"])
        project_id = visitor.project_id
        headers = await self._in_thread(partial(checked_headers, project_id, given))
        body = await request_checks.read_body(self.receive, most=request_checks.LARGEST_JSON)
        body = unpacked(body, given.pop(b"content-encoding", b"").decode("latin1").strip().lower())
        await self.application.pass_on(
            self.scope | {"headers": list(given.items())},
            self.send,
            target=f"{target}?{request_checks.joined(query)}" if query else target,
            project_id=project_id,
            body=body,
            more=headers,
        )

    async def _pass_on(self, visitor: Caller, target: str, query: str, body: Any) -> None:
        await self.application.pass_on(
            self.scope,
            self.send,
            target=f"{target}?{query}" if query else target,
            project_id=visitor.project_id,
            body=body,
            changes_nothing=self.route is not None and self.route.policy is READ,
        )


def _run_of_job(visitor: Caller, content: dict[str, Any]) -> FullResponse | None:
    """Answer `runs/create` with the run of a job, if its script has not begun it yet."""
    try:
        run = run_for(visitor, content)
    except UnsupportedRequest:
        return None
    return None if run is None else answer({"run": run})


def _counted(count: Callable[[], None]) -> None:
    """Count a request. Raises Refusal with a delay for one too many."""
    try:
        count()
    except RateLimited as error:
        wait = str(error.retry_after_s or 1).encode()
        raise Refusal(
            429,
            "REQUEST_LIMIT_EXCEEDED",
            f"{error} {error.next_step} Log in batches or less often.",
            ((b"retry-after", wait),),
        ) from error


def _unserved(method: str, path: str) -> Refusal:
    if is_known_path(path):
        return Refusal(405, "ENDPOINT_NOT_FOUND", f"{method} is not served at this address.")
    return Refusal(
        404,
        "ENDPOINT_NOT_FOUND",
        "Slipway does not serve this MLflow REST endpoint. The documentation lists the "
        "supported ones under Experiments.",
    )
