"""What an error tells, and what it never does."""

import pickle

import pytest

from slipway import errors
from slipway.errors import SlipwayError, error_for
from slipway.schemas.problem import FieldError, Problem


def problem(status: int = 422, **changes: object) -> Problem:
    fields: dict[str, object] = {
        "type": "urn:slipway:problem:x",
        "title": "The request is not valid",
        "status": status,
        "detail": "The name is empty.",
        "code": "invalid_input",
        "field": "name",
        "next_step": "Type a name.",
        "request_id": "req-1",
    }
    return Problem.model_validate(fields | changes)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidInput),
        (401, errors.Unauthenticated),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (405, errors.InvalidInput),
        (409, errors.Conflict),
        (413, errors.TooLarge),
        (415, errors.InvalidInput),
        (422, errors.InvalidInput),
        (429, errors.RateLimited),
        (500, errors.ServerError),
        (503, errors.Unavailable),
    ],
)
def test_a_problem_becomes_the_error_of_its_status(status: int, kind: type[SlipwayError]) -> None:
    error = error_for(status, problem(status), request_id="sent", retry_after_s=3)
    assert type(error) is kind
    assert (error.status, error.code, error.field) == (status, "invalid_input", "name")
    assert (error.next_step, error.request_id) == ("Type a name.", "req-1")
    assert error.retry_after_s == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, errors.UnexpectedAnswer),
        (404, errors.UnexpectedAnswer),
        (405, errors.UnexpectedAnswer),
        (418, errors.UnexpectedAnswer),
        (401, errors.Unauthenticated),
        (429, errors.RateLimited),
        (500, errors.ServerError),
        (502, errors.Unavailable),
        (504, errors.Unavailable),
    ],
)
def test_a_status_without_a_problem_is_told_apart_from_the_portals(
    status: int, kind: type[SlipwayError]
) -> None:
    error = error_for(status, None, request_id="sent")
    assert type(error) is kind
    assert error.request_id == "sent"
    assert error.next_step


def test_printed_it_tells_the_fields_the_next_step_and_the_request_id() -> None:
    fault = FieldError(field="name", message="is empty")
    error = error_for(422, problem(errors=[fault]), request_id="sent")
    assert str(error).splitlines() == [
        "The name is empty.",
        "name: is empty",
        "Next step: Type a name.",
        "Request id: req-1",
    ]


def test_nothing_a_server_says_can_drive_a_terminal() -> None:
    nasty = "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe \x9b31m"
    fault = FieldError(field=nasty, message=nasty)
    hostile = problem(detail=nasty, code=nasty, next_step=nasty, request_id=nasty, errors=[fault])
    shown = str(error_for(422, hostile, request_id="sent"))
    assert "\\x1b[2J" in shown
    assert "\\u202e" in shown
    assert not set(shown) & set("\x1b\x07\x9b\u202e")


def test_it_survives_the_way_between_processes() -> None:
    error = error_for(409, problem(409), request_id="sent", retry_after_s=2)
    back = pickle.loads(pickle.dumps(error))  # noqa: S301  (our own bytes)
    assert type(back) is errors.Conflict
    assert vars(back) == vars(error)
    assert str(back) == str(error)


def test_catching_a_wider_kind_catches_the_narrower() -> None:
    assert issubclass(errors.NotLoggedIn, errors.Unauthenticated)
    assert issubclass(errors.ConnectionFailed, errors.Unavailable)
