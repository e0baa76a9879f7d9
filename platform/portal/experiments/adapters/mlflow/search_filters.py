"""The filters and orders of `runs/search`, where MLflow's server and we read them alike.

MLflow reads a filter with a parser of SQL, which has opinions on quotes, keywords and comments.
What is written plainly is read here. All else is Unusual, and MLflow answers it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from portal.core.errors import InvalidInput
from portal.experiments.adapters.mlflow.batches import RUN_NAME, UnsupportedRequest
from portal.experiments.adapters.mlflow.search import add_conditions
from portal.experiments.adapters.mlflow.sql import SqlConditions, column_of, table_of
from portal.experiments.filters import (
    FieldKind,
    FilterCondition,
    RunField,
    parse_field,
    parse_filter,
)

_MOST_ORDERS = 20
_LONGEST = 6_000
# Quoted text without quotes, backslashes and control characters.
_PLAIN = r"[^'\"`\\\x00-\x1f\x7f]"
# MLflow's parser treats these as keywords even after a dot.
_WORD = r"(?!(?i:case|in|values|using|from|as)\b)[A-Za-z]\w*"
_KEY = rf"(?:{_WORD}(?:\.{_WORD})*|`{_PLAIN}+`|\"{_PLAIN}+\")"
_LOGGED = rf"(?:metrics?|param(?:s|eters?)?|tags?)\.{_KEY}"
_ATTRIBUTE = (
    r"(?:(?:attr|attributes?|run)\.)?"
    r"(?:start_time|end_time|created|run_id|run_name|status|user_id|artifact_uri)"
)
_DATA = r"datasets?\.(?:name|digest|context)"
_TEXT = rf"(?:'{_PLAIN}*'|\"{_PLAIN}*\")"
_NUMBER = r"-?\d{1,15}(?:\.\d{1,15})?(?:[eE]-?\d{1,3})?"
_LIST = rf"\({_TEXT}(?:, *{_TEXT})*\)"
_CONDITION = (
    rf"(?:{_LOGGED}|{_ATTRIBUTE}|{_DATA})"
    rf"(?: *(?:!=|<=|>=|=|<|>) *(?:{_NUMBER}|{_TEXT})| +(?i:i?like) +{_TEXT}"
    rf"| +(?i:(?:not +)?in) +{_LIST}| +(?i:is +(?:not +)?null))"
)
_FILTER = re.compile(rf"{_CONDITION}(?: +(?i:and) +{_CONDITION})*", re.ASCII)
_ORDER = re.compile(rf"(?P<field>{_LOGGED}|{_ATTRIBUTE})(?: +(?P<way>(?i:asc|desc)))?", re.ASCII)
_RUN_ID = RunField(FieldKind.ATTRIBUTE, "run_id")
_NAME = RunField(FieldKind.ATTRIBUTE, "run_name")
_BEGAN = RunField(FieldKind.ATTRIBUTE, "start_time")


@dataclass(frozen=True)
class RunSortField:
    """One field by which runs are sorted. Those without a value come last either way."""

    field: RunField
    descending: bool


def conditions_of(text: str) -> tuple[FilterCondition, ...]:
    """Return the conditions of a filter. Raises Unusual."""
    if not text:
        return ()
    if len(text) > _LONGEST or _FILTER.fullmatch(text) is None:
        raise UnsupportedRequest
    try:
        filter_conditions = parse_filter(text)
    except InvalidInput as error:
        raise UnsupportedRequest from error
    for filter_condition in filter_conditions:
        listed = filter_condition.operator in ("in", "not in")
        if (
            listed
            and filter_condition.field != _RUN_ID
            and filter_condition.field.kind is not FieldKind.DATASET
        ):
            raise UnsupportedRequest
        if filter_condition.value is None and filter_condition.field.kind is FieldKind.METRIC:
            raise UnsupportedRequest
    # The tag holds the name. Old clients write only the tag.
    name = RunField(FieldKind.TAG, RUN_NAME)
    return tuple(
        replace(filter_condition, field=name)
        if filter_condition.field == _NAME
        else filter_condition
        for filter_condition in filter_conditions
    )


def sort_fields_of(listed: Sequence[object]) -> tuple[RunSortField, ...]:
    """Return the orders of a search. Raises Unusual."""
    run_sort_fields = [_sorting(text) for text in listed]
    if len(run_sort_fields) > _MOST_ORDERS or len(
        {run_sort_field.field for run_sort_field in run_sort_fields}
    ) < len(run_sort_fields):
        raise UnsupportedRequest
    return tuple(run_sort_fields)


def _sorting(text: object) -> RunSortField:
    read = _ORDER.fullmatch(text) if isinstance(text, str) and len(text) <= _LONGEST else None
    if read is None:
        raise UnsupportedRequest
    try:
        field = parse_field(read["field"], name="order_by")
    except InvalidInput as error:
        raise UnsupportedRequest from error
    return RunSortField(field, descending=(read["way"] or "").lower() == "desc")


@dataclass(frozen=True)
class RunQuery:
    """Joins, conditions and order of a query of runs (table alias `r`), with the parameters."""

    joins: str
    join_values: list[str]
    where: SqlConditions
    order: str


def statement_of(
    conditions: Sequence[FilterCondition], sort_fields: Sequence[RunSortField], where: SqlConditions
) -> RunQuery:
    """Return the query of a search within `where`, the newest first where all else is alike."""
    add_conditions(where, conditions)
    joins, values, terms = "", [], []
    for number, run_sort_field in enumerate(sort_fields):
        way = "DESC" if run_sort_field.descending else "ASC"
        if run_sort_field.field.kind is FieldKind.ATTRIBUTE:
            column, rank = column_of(run_sort_field.field.key), ""
        else:
            name = f"o{number}"
            joins += (
                f" LEFT JOIN {table_of(run_sort_field.field.kind)} {name}"
                f" ON {name}.run_uuid = r.run_uuid AND {name}.key = %s"
            )
            values.append(run_sort_field.field.key)
            column = f"{name}.value"
            rank = (
                f"WHEN {name}.is_nan THEN 1 "
                if run_sort_field.field.kind is FieldKind.METRIC
                else ""
            )
        terms.append(f"CASE {rank}WHEN {column} IS NULL THEN 2 ELSE 0 END, {column} {way}")
    if _BEGAN not in [run_sort_field.field for run_sort_field in sort_fields]:
        terms.append("r.start_time DESC")
    return RunQuery(joins, values, where, ", ".join([*terms, "r.run_uuid"]))
