"""Labels of predictions, which may arrive late, twice, or be corrected."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import User
from portal.core import clock
from portal.core.errors import InvalidInput
from portal.endpoints.models import Endpoint
from portal.monitoring.label_basis import stored_basis
from portal.monitoring.models import CapturedHour, EmptyLabel, Label
from portal.monitoring.monitor_settings import monitor_of
from portal.monitoring.paths import HOUR, hour_of_prediction
from portal.monitoring.statistics.tasks import Basis, canonical, misfit, name_of
from slipway.schemas.monitoring import LabelIn

_LOOKED_UP_AT_ONCE = 400
Key = tuple[bool, str, int]


@dataclass
class LabelCounts:
    """Counts of processed labels. `empty` ones have no value and are skipped."""

    added: int = 0
    same: int = 0
    changed: int = 0
    empty: int = 0


def label_predictions(*, endpoint: Endpoint, by: User, labels: Sequence[LabelIn]) -> LabelCounts:
    """Store labels of predictions, all of them or none.

    The same value again changes nothing. Another one is a new version, and replaces the old one.
    Raises InvalidInput if one list has two values for a row, or a value is not of the type that
    labels have.
    """
    done = LabelCounts(empty=sum(_is_empty(label.value) for label in labels))
    empty = {_key(label) for label in labels if _is_empty(label.value)}
    with transaction.atomic():
        monitor = monitor_of(endpoint)
        basis = stored_basis(monitor)
        requested = _by_key(labels, basis)
        _lock(endpoint)
        known = _existing_labels(endpoint, requested)
        fresh, stale = [], []
        for key, value in requested.items():
            before = known.get(key)
            if before is not None and _is_same_value(before.value, value, basis):
                done.same += 1
                continue
            if before is None:
                done.added += 1
            else:
                done.changed += 1
                stale.append(before.pk)
            fresh.append(_label(endpoint, by, key, value, before))
        for start in range(0, len(stale), _LOOKED_UP_AT_ONCE):
            some = stale[start : start + _LOOKED_UP_AT_ONCE]
            Label.objects.filter(pk__in=some).update(is_current=False)
        Label.objects.bulk_create(fresh, batch_size=500)
        _mark_stale(endpoint, fresh)
        _update_empty(endpoint, empty=empty, labelled=requested)
        if fresh:
            audit.record(
                "prediction.label",
                kind="endpoint",
                target=endpoint,
                label=endpoint.name,
                project=endpoint.project,
                after={"added": done.added, "changed": done.changed},
            )
    return done


def _lock(endpoint: Endpoint) -> None:
    """Serialize lists of labels of one endpoint."""
    list(Endpoint.objects.select_for_update(no_key=True).filter(pk=endpoint.pk).values_list("pk"))


def _is_empty(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _key(label: LabelIn) -> Key:
    return label.own_id is not None, label.own_id or label.prediction_id or "", label.row


def _by_key(labels: Sequence[LabelIn], basis: Basis) -> dict[Key, Any]:
    result: dict[Key, Any] = {}
    for at, item in enumerate(labels):
        if _is_empty(item.value):
            continue
        expected = misfit(item.value, basis)
        if expected:
            raise InvalidInput(
                f"The label {str(item.value)[:80]!r} is not {expected}.",
                code="label_of_other_type",
                field=f"labels.{at}.value",
                next_step=(
                    "Correct the value, or change the task or the type of labels under Alerts "
                    "and limits of the endpoint."
                ),
            )
        key = _key(item)
        if key in result and not _is_same_value(result[key], item.value, basis):
            raise InvalidInput(
                f"Row {item.row} of {key[1]} has two different labels in this list.",
                code="two_labels",
                field=f"labels.{at}",
                next_step="Send one label per row.",
            )
        result[key] = item.value
    return result


def _is_same_value(item: Any, other: Any, basis: Basis) -> bool:
    if isinstance(item, list) or isinstance(other, list):
        return bool(item == other)
    if basis.label_type:
        forms = canonical(item, basis.label_type), canonical(other, basis.label_type)
        if forms[0] is not None and forms[0] == forms[1]:
            return True
    return name_of(item) == name_of(other) and isinstance(item, bool) == isinstance(other, bool)


def _existing_labels(endpoint: Endpoint, requested: Collection[Key]) -> dict[Key, Label]:
    references = sorted({key[1] for key in requested})
    result: dict[Key, Label] = {}
    for start in range(0, len(references), _LOOKED_UP_AT_ONCE):
        some = references[start : start + _LOOKED_UP_AT_ONCE]
        labels = Label.objects.filter(endpoint=endpoint, reference__in=some, is_current=True)
        result |= {(label.is_own, label.reference, label.row): label for label in labels}
    return result


def _update_empty(endpoint: Endpoint, *, empty: set[Key], labelled: Collection[Key]) -> None:
    """Store the rows that have an empty label and no other, each once."""
    keys = sorted(empty.difference(labelled, _existing_labels(endpoint, empty)))
    now = clock.now()
    rows = [
        EmptyLabel(
            endpoint=endpoint,
            is_own=is_own,
            reference=reference,
            row=row,
            hour=(None if is_own else hour_of_prediction(reference)) or now,
        )
        for is_own, reference, row in keys
    ]
    EmptyLabel.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
    references = sorted({reference for _, reference, _ in labelled})
    for start in range(0, len(references), _LOOKED_UP_AT_ONCE):
        some = references[start : start + _LOOKED_UP_AT_ONCE]
        stored = EmptyLabel.objects.filter(endpoint=endpoint, reference__in=some)
        filled = [
            empty_label.pk
            for empty_label in stored
            if (empty_label.is_own, empty_label.reference, empty_label.row) in labelled
        ]
        for first in range(0, len(filled), _LOOKED_UP_AT_ONCE):
            EmptyLabel.objects.filter(pk__in=filled[first : first + _LOOKED_UP_AT_ONCE]).delete()


def _label(endpoint: Endpoint, by: User, key: Key, value: Any, before: Label | None) -> Label:
    is_own, reference, row = key
    made = Label(
        endpoint=endpoint,
        is_own=is_own,
        reference=reference,
        row=row,
        value=value,
        by=by,
        version=before.version + 1 if before is not None else 1,
    )
    if is_own and before is not None:
        made.prediction_id, made.hour = before.prediction_id, before.hour
    elif not is_own:
        made.prediction_id, made.hour = reference, hour_of_prediction(reference)
    return made


def _mark_stale(endpoint: Endpoint, labels: Sequence[Label]) -> None:
    hours = {label.hour for label in labels if label.hour is not None}
    near = sorted({hour + step for hour in hours for step in (0 * HOUR, HOUR)})
    for start in range(0, len(near), _LOOKED_UP_AT_ONCE):
        some = near[start : start + _LOOKED_UP_AT_ONCE]
        CapturedHour.objects.filter(endpoint=endpoint, hour__in=some).update(is_stale=True)
