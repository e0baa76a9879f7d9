"""MLflow's errors without details of its database: no statement, table or column."""

import re
from typing import Any

import orjson
import structlog

from slipway.schemas.truncation import shorten

log = structlog.get_logger(__name__)
# Messages of SQLAlchemy, drivers and databases, and of Python about values that a driver
# refuses.
_DATABASE = re.compile(
    r"\[SQL:|\[parameters:|sqlalche\.me|sqlalchemy|sqlite|psycopg|pg_catalog"
    r"|\(\w+(?:\.\w+)*(?:Error|Warning|Exception|Violation|Canceled)\)"
    r"|no such (?:table|column|function)|constraint failed|violates \w+[- ]\w+ constraint"
    r"|relation \"|duplicate key value|database is locked|too many (?:SQL )?variables"
    r"|out of range for type|(?:integer|bigint) out of range|int too large to convert"
    r"|\bSELECT\b.+\bFROM\b|\bINSERT INTO\b|\bUPDATE\b.+\bSET\b|\bDELETE FROM\b"
    r"|surrogates not allowed|recursion depth|Traceback \(most",
    re.IGNORECASE | re.DOTALL,
)
_ECHO_LIMIT = 2_000
_BUSY = "The database does not respond; try again in a moment."
_REFUSED = (
    "The database refuses a value in this request: a number beyond 64 bits, an invalid "
    "character, or text that is too long."
)
_UNIQUE = re.compile(
    r"unique constraint|duplicate key value|UniqueViolation|is not unique", re.IGNORECASE
)
_TAKEN = "RESOURCE_ALREADY_EXISTS"
# Messages for name conflicts, by part of the path.
_KINDS = (
    ("/experiments/", "An experiment with that name already exists."),
    ("/registered-models/alias", "An alias with that name already exists."),
    ("/registered-models/", "A registered model with that name already exists."),
    (
        "/model-versions/",
        "This version already exists; send the request again to get the next one.",
    ),
    ("/logged-models", "A logged model with that id already exists."),
    ("/runs/", "This was already logged to the run."),
    ("/traces", "A trace with that id already exists."),
    ("/datasets/", "A dataset with that name already exists."),
)
_FAILED = (
    "MLflow could not complete the request. An administrator finds the reason in Slipway's log."
)


def clean_error(status: int, body: bytes, target: str) -> bytes:
    """Return the sanitized body of an error."""
    try:
        problem: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        problem = None
    if not isinstance(problem, dict):
        return _cleaned_text(status, body, target)
    for name in ("message", "detail", "error"):
        text = problem.get(name)
        if isinstance(text, str) and _DATABASE.search(text):
            log.warning("mlflow_database_error", target=target[:200], reason=text[:1000])
            _describe(problem, name, text, status, target)
        elif isinstance(text, str) and len(text) > _ECHO_LIMIT:
            problem[name] = shorten(text, _ECHO_LIMIT)
        elif not isinstance(text, str | None) and _DATABASE.search(orjson.dumps(text).decode()):
            problem[name] = _sentence(status)
    if "error_code" not in problem and isinstance(problem.get("detail"), str):
        problem = {"error_code": _code_of(status), "message": problem["detail"]}
    return orjson.dumps(problem)


def _describe(problem: dict[str, Any], name: str, text: str, status: int, target: str) -> None:
    """Replace a database message. A name conflict gets its own message."""
    if problem.get("error_code") != _TAKEN and not _UNIQUE.search(text):
        problem[name] = _sentence(status)
        return
    problem["error_code"] = _TAKEN
    path = target.partition("?")[0]
    sentences = (sentence for part, sentence in _KINDS if part in path)
    problem[name] = next(sentences, "This already exists.")


def _code_of(status: int) -> str:
    if status == 404:
        return "RESOURCE_DOES_NOT_EXIST"
    return "INTERNAL_ERROR" if status >= 500 else "BAD_REQUEST"


def _cleaned_text(status: int, body: bytes, target: str) -> bytes:
    text = body.decode(errors="replace")
    message = _FAILED
    if _DATABASE.search(text):
        log.warning("mlflow_database_error", target=target[:200], reason=text[:1000])
        message = _sentence(status)
    elif status < 500:
        return body
    return orjson.dumps({"error_code": _code_of(status), "message": message})


def _sentence(status: int) -> str:
    if status == 503:
        return _BUSY
    return _REFUSED if status < 500 else _FAILED
