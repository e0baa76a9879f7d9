"""Schemathesis drives a real portal by the API's own description and believes nothing it says."""

from collections.abc import Iterator
from http.cookiejar import DefaultCookiePolicy
from itertools import count
from typing import Any
from zlib import crc32

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import load_all_checks
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.generation.meta import TestPhase
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tests.portal.api.test_openapi import openapi
from tests.portals import RunningPortal
from tests.turns import asked_all

pytestmark = pytest.mark.integration

# Refusals by rules that a JSON schema cannot say.
BEYOND_THE_SCHEMA = frozenset(
    {
        "bad_cron",
        "bad_filter",
        "bad_frame",
        "bad_path",
        "bad_snapshot",
        "bad_source",
        "bad_strategy",
        "empty_tier",
        "invalid_cursor",
        "invalid_email",
        "invalid_secret_name",
        "max_below_min",
        "no_packages",
        "no_such_engine",
        "no_such_environment",
        "no_such_experiment",
        "scopes_missing",
        "no_nodes",
        "no_such_parent",
        "no_such_person",
        "no_such_project",
        "no_such_snapshot",
        "no_such_stage",
        "no_such_team",
        "no_such_tier",
        "no_such_window",
        "not_a_notebook",
        "nothing_to_compare",
        "one_of_three",
        "report_too_long",
        "reserved_name",
    }
)
_ONE_IN = 5
_BOUNDED = settings(
    max_examples=20 if asked_all() else 2,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _without_keys(description: dict[str, Any]) -> dict[str, Any]:
    """Leave out Idempotency-Key: one that is made up twice is rightly refused the second time."""
    for verbs in description["paths"].values():
        for operation in verbs.values():
            operation["parameters"] = [
                parameter
                for parameter in operation.get("parameters", [])
                if parameter["name"] != "Idempotency-Key"
            ]
    return description


def _comes_of_bounds(case: "schemathesis.Case[Any]") -> bool:
    return case.meta is not None and case.meta.phase.name == TestPhase.COVERAGE


def _is_beyond_the_schema(problem: dict[str, Any]) -> bool:
    """Whether a refusal is of what no schema says: a name nobody has, fields that go together."""
    fields = ("body.payload", "query", "signature", "plan", "entries.0", "requirements", "trigger")
    is_beyond = problem["code"] in BEYOND_THE_SCHEMA or problem.get("field") in fields
    # The parts of a path have bounds of their own.
    return is_beyond or "has a name of more than 255 bytes" in problem["detail"]


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """One connection for ten thousand requests; nothing of an answer goes along with the next."""
    with requests.Session() as made:
        made.trust_env = False
        made.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        yield made


schema = schemathesis.openapi.from_dict(_without_keys(openapi()))
_OPERATIONS = [schema[path][verb] for path in schema for verb in schema[path]]
load_all_checks()


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(
            operation,
            id=operation.label,
            marks=[pytest.mark.thorough] if crc32(operation.label.encode()) % 4 else [],
        )
        for operation in _OPERATIONS
    ],
)
def test_the_api_keeps_its_own_description(
    operation: "schemathesis.APIOperation[Any, Any, Any, Any]",
    portal: RunningPortal,
    session: requests.Session,
) -> None:
    # What `schema.parametrize` does, but when an operation is tested and not when tests are
    # collected, which is 12 s of work in each process.
    ask = build_operation_test(
        config=schema.config,
        operation=operation,
        test_func=_keeps_its_description,
        explicit_settings=_BOUNDED,
        given_kwargs={},
        feedback=FeedbackSources(constants_value_source=None),
    )
    ask(portal=portal, session=session, turn=count(crc32(operation.label.encode())))


def _keeps_its_description(
    case: "schemathesis.Case[Any]",
    portal: RunningPortal,
    session: requests.Session,
    turn: Iterator[int],
) -> None:
    # A hundred cases an operation come of the bounds in its schema; other operations have the like.
    if _comes_of_bounds(case) and next(turn) % _ONE_IN and not asked_all():
        return
    headers = {"Authorization": f"Bearer {portal.tokens['root']}"}
    answer = case.call(base_url=portal.url, headers=headers, session=session)
    excluded: list[Any] = []
    if answer.status_code == 422 and _is_beyond_the_schema(answer.json()):
        excluded.append(positive_data_acceptance)
    if answer.status_code == 413:
        excluded.append(negative_data_rejection)  # which does not know that as a refusal
    case.validate_response(answer, excluded_checks=excluded)
