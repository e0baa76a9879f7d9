"""MLflow's errors without what its database said: clients get no statement, table or column."""

import re
from typing import Any

import orjson
import structlog

log = structlog.get_logger(__name__)
# What SQLAlchemy, the drivers and the databases write into messages, and what Python says of
# values that a driver does not take.
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
_BUSY = "The database does not answer; try again in a moment."
_REFUSED = (
    "The database refuses a value in this request: a number beyond 64 bits, a character that is "
    "none, or a text that is too long."
)
_FAILED = "MLflow could not do this. Whoever runs this installation finds the reason in its log."


def clean_error(status: int, body: bytes, target: str) -> bytes:
    """Return the body of an error as clients may see it."""
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
            problem[name] = _sentence(status)
        elif isinstance(text, str) and len(text) > _ECHO_LIMIT:
            problem[name] = f"{text[:_ECHO_LIMIT]} …"
        elif not isinstance(text, str | None) and _DATABASE.search(orjson.dumps(text).decode()):
            problem[name] = _sentence(status)
    return orjson.dumps(problem)


def _cleaned_text(status: int, body: bytes, target: str) -> bytes:
    text = body.decode(errors="replace")
    if not _DATABASE.search(text):
        return body
    log.warning("mlflow_database_error", target=target[:200], reason=text[:1000])
    code = "INTERNAL_ERROR" if status >= 500 else "BAD_REQUEST"
    return orjson.dumps({"error_code": code, "message": _sentence(status)})


def _sentence(status: int) -> str:
    if status == 503:
        return _BUSY
    return _REFUSED if status < 500 else _FAILED
