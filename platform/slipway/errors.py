"""Errors of the SDK, in the same tree as the portal's.

SlipwayError
├── InvalidInput        a field is wrong; `field` and `errors` name which and why
├── Unauthenticated     the token is unknown, expired or revoked
│   └── NotLoggedIn     this machine knows no server or no token for it; nothing was sent
├── Forbidden           the object is visible, but the role or the token's scope is too low
├── NotFound            there is no such object, or it belongs to somebody else
├── Conflict            the object is no longer in the state the request assumed
├── TooLarge            a body, file or name is over its limit
├── RateLimited         too many requests; see `retry_after_s`
├── Unavailable         a part Slipway depends on does not answer; see `retry_after_s`
│   └── ConnectionFailed  no answer came from the server at all
├── ServerError         a fault of the server; report it with its `request_id`
└── UnexpectedAnswer    what answered does not speak like a Slipway server of this version

`str(error)` is the message, the next step and the request id, one a line. Text that came from a
server is safe to print: what could drive a terminal is written as escapes. No error holds a token.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from slipway.sanitize import visible

# Not at run time: a rank of a job raises these errors where pydantic may not be installed.
if TYPE_CHECKING:
    from slipway.schemas.problem import FieldError, Problem


class SlipwayError(Exception):
    """Base of every error of the SDK.

    `message` says what happened and why. `code` is stable, for programs. `status` is the HTTP
    status, or None when no answer came. `field` and `errors` name what was wrong in a request.
    `next_step` says what to do. `request_id` finds the request in the server's log.
    `retry_after_s` is how many seconds the server asks to wait.
    """

    title: ClassVar[str] = "Something went wrong"
    default_code: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        field: str | None = None,
        errors: "Sequence[FieldError]" = (),
        next_step: str | None = None,
        request_id: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.status = status
        self.field = field
        self.errors = tuple(errors)
        self.next_step = next_step
        self.request_id = request_id
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        lines = [self.message]
        lines += [f"{fault.field}: {fault.message}" for fault in self.errors]
        if self.next_step:
            lines.append(f"Next step: {self.next_step}")
        if self.request_id:
            lines.append(f"Request id: {self.request_id}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Callable[..., "SlipwayError"], tuple[object, ...]]:
        return _restored, (type(self), self.message, dict(self.__dict__))


class InvalidInput(SlipwayError):
    """A field of the request is wrong."""

    title = "The request is not valid"
    default_code = "invalid_input"


class Unauthenticated(SlipwayError):
    """The server does not know the token, or the token has expired or been revoked."""

    title = "Not signed in"
    default_code = "unauthenticated"


class NotLoggedIn(Unauthenticated):
    """This machine has no server, or no token for the server. Nothing was sent."""

    default_code = "not_logged_in"


class Forbidden(SlipwayError):
    """The role or the token's scope is too low."""

    title = "Not allowed"
    default_code = "forbidden"


class NotFound(SlipwayError):
    """There is no such object, or it belongs to somebody else."""

    title = "Not found"
    default_code = "not_found"


class Conflict(SlipwayError):
    """The object is no longer in the state the request assumed."""

    title = "The object has changed"
    default_code = "conflict"


class TooLarge(SlipwayError):
    """A body, file or name is over its limit."""

    title = "Too large"
    default_code = "too_large"


class RateLimited(SlipwayError):
    """Too many requests. `retry_after_s` is the time to wait."""

    title = "Too many requests"
    default_code = "rate_limited"


class Unavailable(SlipwayError):
    """The server, or a part it depends on, cannot answer now."""

    title = "Temporarily unavailable"
    default_code = "unavailable"


class ConnectionFailed(Unavailable):
    """No answer came: the address, the network or the server is at fault."""

    title = "No connection"
    default_code = "connection_failed"


class ServerError(SlipwayError):
    """A fault of the server."""

    title = "The server failed"
    default_code = "server_error"


class UnexpectedAnswer(SlipwayError):
    """The answer is not one of a Slipway server of this version."""

    title = "Unexpected answer"
    default_code = "unexpected_answer"


_BY_STATUS: dict[int, type[SlipwayError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: TooLarge,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}
# Without a problem document from the portal, these mean that another server responded.
_NEED_A_PROBLEM = frozenset({404, 405})


def error_for(
    status: int, problem: "Problem | None", *, request_id: str, retry_after_s: int | None = None
) -> SlipwayError:
    """Return the error for an answer with `status`, explained by `problem` where there is one."""
    if problem is None:
        return _unexplained(status, request_id=request_id, retry_after_s=retry_after_s)
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else InvalidInput)
    return kind(
        visible(problem.detail or problem.title, multiline=True),
        code=visible(problem.code),
        status=status,
        field=_visible_or_none(problem.field),
        errors=[
            fault.model_copy(
                update={"field": visible(fault.field), "message": visible(fault.message)}
            )
            for fault in problem.errors
        ],
        next_step=_visible_or_none(problem.next_step),
        request_id=visible(problem.request_id or request_id),
        retry_after_s=retry_after_s,
    )


def _unexplained(status: int, *, request_id: str, retry_after_s: int | None) -> SlipwayError:
    kind: type[SlipwayError] = UnexpectedAnswer
    next_step = "Check that the address is that of a Slipway server."
    if status in _BY_STATUS and status not in _NEED_A_PROBLEM:
        kind = _BY_STATUS[status]
        next_step = "Try again; if it stays, ask who runs the server or the proxy before it."
    elif status >= 500:
        kind = ServerError
        next_step = "Try again; if it stays, report it with the request id."
    return kind(
        f"The server answered with status {status} and no explanation.",
        status=status,
        next_step=next_step,
        request_id=visible(request_id),
        retry_after_s=retry_after_s,
    )


def _visible_or_none(text: str | None) -> str | None:
    return visible(text, multiline=True) if text else None


def _restored(kind: type[SlipwayError], message: str, state: dict[str, object]) -> SlipwayError:
    """Rebuild an error that was pickled on its way between processes."""
    error = kind(message)
    error.__dict__.update(state)
    return error
