"""First checks of all requests: size, depth, characters, ids."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import orjson

from portal.api.mlflow.answers import Refusal, invalid, missing
from portal.api.mlflow.routes import MlflowRoute
from portal.experiments.adapters.mlflow.ownership import belongs_to_project, default_experiments
from slipway.schemas.base import forbidden_character
from slipway.schemas.json_text import DuplicateKey, read_json
from slipway.schemas.names import path_error

# A batch has at most a megabyte. The profile of a dataset or a page of records may be larger.
LARGEST_JSON = 20_000_000
DEEPEST_JSON = 60
_LONGEST_QUERY = 100_000
_DEFAULT = "0"
_WHOLE = ("timestamp", "step", "start_time", "end_time")
_NUMBERED = frozenset({"experiment_id", "experiment_ids", "version"})
_MOST_ID = 9
_INT64 = 1 << 63
_MOST_DIGITS = 24
_KINDS = {
    "run_id": "run",
    "source_run_id": "run",
    "model_id": "model",
    "experiment_id": "experiment",
    "experiment_ids": "experiment",
}
_FILES = "/api/2.0/mlflow-artifacts"
_ARTIFACTS = tuple(
    f"{_FILES}/{each}/" for each in ("artifacts", "mpu/create", "mpu/complete", "mpu/abort")
)
# Text for people: names of objects, and the keys of metrics, parameters and tags.
_NAMES = frozenset({"name", "new_name", "alias", "key", "run_name", "stage", "tag_key"})
# Keys of a query that MLflow reads as lists. All others have one value.
_LISTS = frozenset({"experiment_ids", "order_by", "run_ids", "stages", "trace_ids"})
# One route has a list under a name that is a single value elsewhere.
_LISTS_OF = {"/ajax-api/2.0/mlflow/metrics/get-history-bulk": _LISTS | {"run_id"}}
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
# Characters that a second decoding would turn into another path.
_ENCODED = ("%2e", "%2f", "%5c", "%00", "%25")


async def read_body(receive: Any, *, most: int) -> bytes:
    """Return the body. Raises Refusal once it is larger than `most` bytes."""
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Refusal(400, "BAD_REQUEST", "The connection ended inside the body.")
        part = event.get("body", b"")
        size += len(part)
        if size > most:
            raise too_large(most)
        parts.append(part)
        if not event.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def too_large(most: int) -> Refusal:
    """Return the refusal of a body that is too large."""
    return Refusal(
        413, "INVALID_PARAMETER_VALUE", f"The body is larger than {most} bytes; send less at once."
    )


def checked_path(path: str) -> str:
    """Return the decoded path to pass on. Raises Refusal for a suspicious one."""
    for artifact in _artifact_paths(path):
        check_artifact_path(artifact)
    parts = path.split("/")
    lowered = path.lower()
    if (
        any(part in (".", "..") for part in parts)
        or "\\" in path
        or any(ord(character) < 32 or ord(character) == 127 for character in path)
        or any(code in lowered for code in _ENCODED)
    ):
        raise invalid("The URL contains characters or path segments that are not allowed.")
    return quote(path, safe="/~:@!$&'()*+,;=")


def parsed_query(query: bytes, path: str) -> list[tuple[str, str]]:
    """Return the pairs of a query string.

    Raises Refusal if it is not text, too long, or has two values where MLflow reads one.
    """
    if len(query) > _LONGEST_QUERY:
        raise invalid(f"The query is longer than {_LONGEST_QUERY} characters.")
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=2_000
        )
    except ValueError as error:
        raise invalid("The query is not percent-encoded UTF-8.") from error
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise invalid("The query contains a NUL character.")
    for name, value in pairs:
        if name == "path" and value.strip("/"):
            check_artifact_path(value.strip("/"))
    _refuse_ambiguous(pairs, _LISTS_OF.get(path, _LISTS))
    return pairs


def _refuse_ambiguous(pairs: list[tuple[str, str]], lists: frozenset[str]) -> None:
    """Raise Refusal for a repeated key, because parsers differ in which value counts."""
    single = [name for name, _ in pairs if name not in lists]
    if len(single) != len(set(single)):
        twice = next(name for name in single if single.count(name) > 1)
        raise invalid(f"The query has {ascii(twice[:100])[1:-1]} more than once; send it once.")
    values = dict(pairs)
    if values.get("run_id", "") != values.get("run_uuid", values.get("run_id", "")):
        raise invalid("The query has a run_id and a different run_uuid; send only the run_id.")


def parsed_json(body: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises Refusal for anything else, deep nesting, or a NUL character."""
    if not body:
        return {}
    if body.count(b"[") + body.count(b"{") > DEEPEST_JSON and _depth(body) > DEEPEST_JSON:
        raise invalid(f"The body is nested deeper than {DEEPEST_JSON} levels.")
    if b"\\u0000" in body:
        raise invalid("The body contains a NUL character, which is not allowed in names or values.")
    result = _loaded(body)
    if not isinstance(result, dict):
        raise invalid("The body must be a JSON object.")
    if _may_repeat_keys(body, result):
        try:
            read_json(body)
        except DuplicateKey as error:
            raise invalid(f"In the body {error}; send each key once.") from error
        except (ValueError, RecursionError):
            raise invalid("The body is not JSON.") from None
    if b"\\" in body or b"\x7f" in body or not body.isascii():
        _check_names(result)
    return result


def _may_repeat_keys(body: bytes, values: dict[str, Any]) -> bool:
    """Return True if there are more colons than keys, so the parser dropped duplicates."""
    keys = _count_keys(values)
    return body.count(b":") != keys and _STRING.sub(b"", body).count(b":") != keys


def _count_keys(result: Any) -> int:
    count, waiting = 0, [result]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            count += len(value)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return count


def _check_names(result: Any) -> None:
    """Raise Refusal for a name with a forbidden character, as in the API."""
    for field, value in _cited(result, _NAMES):
        bad = forbidden_character(value) if isinstance(value, str) else None
        if bad is not None:
            raise invalid(
                f"The {field} has the character U+{ord(bad):04X}, which is not allowed in names."
            )


def _artifact_paths(path: str) -> Iterator[str]:
    """Yield the artifact path of a URI, if it has one."""
    for prefix in _ARTIFACTS:
        if path.startswith(prefix) and len(path) > len(prefix):
            yield path[len(prefix) :]


def check_artifact_path(path: str, field: str = "path") -> None:
    """Raise Refusal for an invalid artifact path."""
    fault = path_error(path.removesuffix("/"))
    if fault is not None:
        raise invalid(f"The {field} of the artifact {fault}.")


def _loaded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid(f"The body is not JSON: {error}") from error


def _depth(body: bytes) -> int:
    """Return the nesting depth of brackets, outside of strings."""
    deepest = depth = 0
    in_string = escaped = False
    for byte in body:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            if depth > DEEPEST_JSON:
                return depth
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def check_numbers(content: dict[str, Any]) -> None:
    """Raise Refusal for a time or step that no table stores. MLflow does not check them."""
    metrics = content.get("metrics")
    for item in (content, *(metrics if isinstance(metrics, list) else ())):
        for name in _WHOLE if isinstance(item, dict) else ():
            number = item.get(name)
            if isinstance(number, str) and len(number) > _MOST_DIGITS:
                raise invalid(f"The {name} is not a 64-bit integer.")
            if isinstance(number, float | int) and not -_INT64 <= number < _INT64:
                raise invalid(f"The {name} {number} is not a 64-bit integer.")


def check_sizes(content: dict[str, Any], pairs: list[tuple[str, str]]) -> None:
    """Raise Refusal for a numeric id with too many digits."""
    for name, value in (*pairs, *_cited(content, _NUMBERED)):
        if name not in _NUMBERED:
            continue
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, str | int) and len(str(item)) > _MOST_ID and str(item).isdigit():
                raise missing(f"There is no {name.removesuffix('s')} {str(item)[:64]}.")


def with_default(project_id: str, content: dict[str, Any]) -> bool:
    """Replace experiment "0" in a body by the project's own. Returns whether it did."""
    changed = False
    for place in (content, *_trace_locations(content)):
        for name in ("experiment_id", "experiment_ids"):
            given = place.get(name)
            if given in (_DEFAULT, 0) and not isinstance(given, bool):
                place[name] = str(default_experiments.of(project_id))
                changed = True
            elif isinstance(given, list) and _DEFAULT in given:
                own = str(default_experiments.of(project_id))
                place[name] = [own if item == _DEFAULT else item for item in given]
                changed = True
    return changed


def _trace_locations(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield where traces name the experiment they belong to."""
    value = content.get("locations")
    locations = list(value) if isinstance(value, list) else []
    place: Any = content
    for name in ("trace", "trace_info", "trace_location"):
        place = place.get(name) if isinstance(place, dict) else None
    for location in (*locations, place):
        inside = location.get("mlflow_experiment") if isinstance(location, dict) else None
        if isinstance(inside, dict):
            yield inside


def query_with_default(project_id: str, pairs: list[tuple[str, str]]) -> str:
    """Return the query string to pass on, with "0" replaced by the project's experiment."""
    meant = [
        (name, str(default_experiments.of(project_id)))
        if name in ("experiment_id", "experiment_ids") and value == _DEFAULT
        else (name, value)
        for name, value in pairs
    ]
    return urlencode(meant)


def as_bytes(content: dict[str, Any]) -> bytes:
    """Return a body to pass on."""
    return orjson.dumps(content)


def joined(pairs: list[tuple[str, str]]) -> str:
    """Return the query string to pass on unchanged."""
    return urlencode(pairs)


def check_citations(route: MlflowRoute, project_id: str, content: dict[str, Any]) -> None:
    """Raise Refusal when a body refers to an object of another project."""
    for name, value in _cited(content, frozenset(route.cites)):
        for item in value if isinstance(value, list) else (value,):
            if (
                isinstance(item, str)
                and item
                and not belongs_to_project(project_id, _KINDS[name], item)
            ):
                raise missing(f"There is no {_KINDS[name]} {item[:64]!r} in this project.")


def _cited(content: Any, names: frozenset[str]) -> Iterator[tuple[str, Any]]:
    waiting = [content]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield from ((name, value) for name, value in item.items() if name in names)
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
