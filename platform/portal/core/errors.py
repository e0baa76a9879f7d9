"""The tree of errors shown to people, mapped to problem+json (RFC 9457) at the edge.

SlipwayError
├── InvalidInput        422  a field is wrong, and named
├── Unauthenticated     401  not signed in, or the token is not usable
├── Forbidden           403  signed in, the object is visible, but the role or scope is too low
├── NotFound            404  there is no such object, or it is not yours (never distinguished)
├── Conflict            409  the object is no longer in the state the request assumed
├── TooLarge            413  body, file or name over its limit
├── RateLimited         429  carries `retry_after_s`
└── Unavailable         503  a dependency does not answer, carries `retry_after_s`

Every error has a stable `code`, a sentence in plain words, optionally the `field` at fault, and the
`next_step` that gets the person further. Any other exception is a bug: a 500 with an id.
"""

from typing import ClassVar


class SlipwayError(Exception):
    """Base class of errors shown to people. `status` is the HTTP status it maps to."""

    status: ClassVar[int] = 500
    default_code: ClassVar[str] = "error"
    title: ClassVar[str] = "Something went wrong"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        field: str | None = None,
        next_step: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.field = field
        self.next_step = next_step
        self.retry_after_s = retry_after_s


class InvalidInput(SlipwayError):
    status = 422
    default_code = "invalid_input"
    title = "The request is not valid"


class Unauthenticated(SlipwayError):
    status = 401
    default_code = "unauthenticated"
    title = "Sign in first"


class Forbidden(SlipwayError):
    status = 403
    default_code = "forbidden"
    title = "Not allowed"


class NotFound(SlipwayError):
    status = 404
    default_code = "not_found"
    title = "Not found"

    def __init__(
        self,
        message: str = "There is no such object, or you have no access to it.",
        *,
        next_step: str = "Check the address, or ask an owner of the project for access.",
    ) -> None:
        super().__init__(message, next_step=next_step)


class Conflict(SlipwayError):
    status = 409
    default_code = "conflict"
    title = "The object has changed"


class TooLarge(SlipwayError):
    status = 413
    default_code = "too_large"
    title = "Too large"


class RateLimited(SlipwayError):
    status = 429
    default_code = "rate_limited"
    title = "Too many requests"


class Unavailable(SlipwayError):
    status = 503
    default_code = "unavailable"
    title = "Temporarily unavailable"
