"""Liveness, readiness and metrics of the portal."""

from typing import Any

import structlog
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from portal.accounts.gates import MetricsReader
from portal.core.db_errors import database_problem
from portal.core.metrics import INSTALLATION
from portal.core.policy import Public, guarded_by
from portal.core.problems import current_problems

log = structlog.get_logger(__name__)
_migrated = {"yes": False}


@guarded_by(Public("for load balancers; the response contains nothing about tenants"))
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Return 200 while the process responds."""
    return HttpResponse("ok\n", content_type="text/plain")


@guarded_by(Public("for load balancers; the response contains nothing about tenants"))
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 when requests can be served: the database responds, its tables are current.

    `problems` of the installation are listed, but do not affect readiness, because the pages of
    this portal show them.
    """
    reason = _database()
    checks = {"database": not reason, "migrations": not reason and _migrations()}
    ready = all(checks.values())
    body = {
        "ready": ready,
        "checks": checks,
        "reasons": {"database": reason} if reason else {},
        "problems": _problems() if ready else {},
    }
    return JsonResponse(body, status=200 if ready else 503)


@guarded_by(MetricsReader())
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return Prometheus metrics of this process and of the installation."""
    text = generate_latest() + generate_latest(INSTALLATION)
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


def _problems() -> dict[str, str]:
    try:
        return {problem.name: problem.text for problem in current_problems()}
    except DatabaseError:
        return {}


def _database() -> str:
    """Return why the database cannot be used, or "" if it responds."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            row: Any = cursor.fetchone()
    except DatabaseError as error:
        problem = database_problem(error)
        log.warning("database_not_ready", reason=str(error)[:300])
        return problem.message
    return "" if row == (1,) else "The database returned an unexpected result."


def _migrations() -> bool:
    """Return whether the tables are current. A positive result is cached."""
    if not _migrated["yes"]:
        try:
            executor = MigrationExecutor(connection)
            plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        except DatabaseError:
            return False
        _migrated["yes"] = not plan
    return _migrated["yes"]
