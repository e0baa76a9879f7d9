"""What every refusal of the API must look like."""

import re
from typing import Any

import orjson
from django.http import HttpResponse

from slipway.schemas.problem import Problem

CONTENT_TYPE = "application/problem+json"


def problem_of(status: int, content_type: str, body: bytes) -> Problem:
    """Check that an answer is a complete problem of RFC 9457 and return it."""
    assert 400 <= status < 500, (status, body[:500])
    assert content_type == CONTENT_TYPE, (status, content_type, body[:200])
    raw: dict[str, Any] = orjson.loads(body)
    problem = Problem.model_validate(raw)
    assert problem.status == status
    assert problem.type == f"urn:slipway:problem:{problem.code}"
    assert re.fullmatch(r"[a-z0-9_]+", problem.code)
    assert problem.title
    assert problem.detail
    assert problem.next_step, f"{problem.code} names no next step"
    assert problem.request_id, f"{problem.code} names no request"
    return problem


def refusal(answer: HttpResponse) -> Problem:
    """Return the problem in an answer of the test client."""
    return problem_of(answer.status_code, answer.headers.get("Content-Type", ""), answer.content)
