"""Limits on filters, orders and lists of ids, checked before MLflow reads them.

Each condition becomes a join in MLflow's query: hundreds of them occupy its server for seconds and
end in an exhausted stack or in the database's own limit.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from portal.api.mlflow.answers import invalid
from portal.experiments.filters import MAX_COMPARISONS

MAX_LENGTH = 20_000
MAX_ORDERS = 20
MAX_NESTING = 10
# Each is a variable of a statement, and SQLite limits their number.
MAX_IDS = 10_000
# MLflow's parser supports comments, so it may parse quoted text as conditions.
# Words inside of quotes count too, up to a higher limit.
_MAX_WORDS = 2 * MAX_COMPARISONS
_ORDER = "order_by"
_QUOTED = re.compile(r"'(?:''|\\'|[^'])*'|\"(?:\"\"|\\\"|[^\"])*\"|`(?:``|[^`])*`")
_JOINING = re.compile(r"\b(?:and|or)\b", re.IGNORECASE)
_BRACKET = re.compile(r"[()]")


def check_searches(content: dict[str, Any], query: Iterable[tuple[str, str]]) -> None:
    """Raise Refusal for a filter, an order or a list that is too long, deep or complex."""
    for name, value in content.items():
        if name.endswith("_ids") and isinstance(value, list) and len(value) > MAX_IDS:
            raise invalid(
                f"{name[:40]} has {len(value)} values, and at most {MAX_IDS} are allowed. Ask in "
                "several requests."
            )
    orders = 0
    for name, text in _searches(content, query):
        if len(text) > MAX_LENGTH:
            raise invalid(
                f"The {name} has {len(text)} characters, and at most {MAX_LENGTH} are allowed. "
                "Search in several requests."
            )
        if name == _ORDER:
            orders += 1
        _check_parts(name, text)
    if orders > MAX_ORDERS:
        raise invalid(
            f"There are {orders} fields in {_ORDER}, and at most {MAX_ORDERS} are allowed."
        )


def _searches(
    content: dict[str, Any], query: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    for name, value in (*content.items(), *query):
        if name != _ORDER and "filter" not in name:
            continue
        for text in value if isinstance(value, list) else (value,):
            if isinstance(text, str):
                yield name[:40], text


def _check_parts(name: str, text: str) -> None:
    words = len(_JOINING.findall(text))
    if words >= MAX_COMPARISONS:
        conditions = len(_JOINING.findall(_QUOTED.sub("''", text))) + 1
        if conditions > MAX_COMPARISONS or words > _MAX_WORDS:
            raise invalid(
                f"The {name} has more than {MAX_COMPARISONS} conditions. Search with fewer, or in "
                "several requests."
            )
    depth = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket == "(" else -1
        if depth > MAX_NESTING:
            raise invalid(f"The {name} nests brackets deeper than {MAX_NESTING} levels.")
