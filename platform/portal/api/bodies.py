"""Reading JSON bodies strictly: no NaN, no duplicate keys, no bottomless nesting."""

import json
import re
from typing import Any, NoReturn, cast

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from ninja.parser import Parser
from ninja.types import DictStrAny

from portal.core.errors import InvalidInput, TooLarge
from portal.core.text import size_text
from slipway.schemas.json_text import DuplicateKey, unique_keys

# Strings are skipped whole, so that brackets inside them do not count.
_DEPTH_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def depth_of(body: bytes) -> int:
    """Return the deepest nesting of brackets in a JSON text, without parsing it."""
    depth = deepest = 0
    for match in _DEPTH_TOKEN.finditer(body):
        token = match.group()
        if token in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token in (b"]", b"}"):
            depth -= 1
    return deepest


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidInput(
        f"{name} is not a JSON number.",
        code="invalid_json",
        next_step="Send a finite number, or leave the field out.",
    )


def parse_json(body: bytes) -> Any:
    """Parse a JSON body; raises InvalidInput with the place of the fault."""
    if depth_of(body) > settings.SLIPWAY_MAX_JSON_DEPTH:
        raise InvalidInput(
            f"The JSON is nested deeper than {settings.SLIPWAY_MAX_JSON_DEPTH} levels.",
            code="too_deep",
            next_step="Flatten the document.",
        )
    try:
        # Given bytes, `json` would take UTF-16 too, whose bytes the depth scan cannot read.
        text = body.decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=unique_keys)
    except DuplicateKey as error:
        raise InvalidInput(
            f"The key {error.key!r} appears twice in one object.",
            code="duplicate_key",
            field=error.key,
            next_step="Send each key once.",
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "The body is not UTF-8.", code="invalid_json", next_step="Encode it as UTF-8."
        ) from error
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"The body is not JSON: {error.msg} (line {error.lineno}, column {error.colno}).",
            code="invalid_json",
            next_step="Check the document with a JSON validator.",
        ) from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise InvalidInput(
            "A number in the body has too many digits.",
            code="invalid_json",
            next_step="Send a smaller number.",
        ) from error


def body_too_large() -> TooLarge:
    """Return the error that names the limit of bodies."""
    return TooLarge(
        f"The body is larger than {size_text(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)}.",
        next_step="Send less, or upload a file.",
    )


class StrictParser(Parser):
    """Ninja's parser with our reading of JSON."""

    def parse_body(self, request: HttpRequest) -> DictStrAny:
        """Return the parsed body; raises TooLarge or InvalidInput."""
        try:
            body = request.body
        except RequestDataTooBig as error:
            raise body_too_large() from error
        return cast("DictStrAny", parse_json(body))
