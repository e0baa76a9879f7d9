"""Triggers of schedules: the events that may start them, and what is known about each. No I/O."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from slipway.schemas.base import AnswerSchema, Line, RequestSchema, Whole

EventKind = Literal[
    "dataset_version", "model_version", "model_stage", "drift_alert", "labels", "webhook"
]
Name = Annotated[Line, Field(min_length=1, max_length=256)]
MAX_BODY_BYTES = 32 * 1024
MOST_EVENTS_AN_HOUR = 60
MOST_LABELS = 100_000

# The field that an event needs, and those that it may have.
_NEEDED: Mapping[str, str] = {
    "dataset_version": "dataset",
    "model_version": "model",
    "model_stage": "model",
    "drift_alert": "endpoint",
    "labels": "endpoint",
}
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "model_stage": ("stage", "alias"),
    "labels": ("count",),
}
_FIELDS = ("dataset", "model", "stage", "alias", "endpoint", "count")
# An example of each event. Schedules may refer to these names, as `${event.NAME}`.
EVENT_SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "dataset_version": {"id": "tev_1", "dataset": "digits", "version": 1, "reference": "digits:1"},
    "model_version": {"id": "tev_1", "model": "digits", "version": 1, "uri": "models:/digits/1"},
    "model_stage": {
        "id": "tev_1",
        "model": "digits",
        "version": 1,
        "uri": "models:/digits/1",
        "stage": "Production",
        "alias": "",
    },
    "drift_alert": {
        "id": "tev_1",
        "endpoint": "digits",
        "alert": "alert_1",
        "kind": "drift",
        "reason": "1 input differs from the baseline.",
    },
    "labels": {"id": "tev_1", "endpoint": "digits", "labels": 1000},
    "webhook": {"id": "tev_1", "body": {}},
}


class TriggerIn(RequestSchema):
    """An event that starts a schedule.

    `dataset_version` of `dataset`, `model_version` of `model`, `model_stage` when a version of
    `model` enters `stage` or gets `alias` (any if neither is named), `drift_alert` when an alert
    about inputs or predictions of `endpoint` opens, `labels` for each `count` new labels of
    `endpoint`, `webhook` when a secret URL is called.
    """

    event: EventKind
    dataset: Name | None = None
    model: Name | None = None
    stage: Name | None = None
    alias: Name | None = None
    endpoint: Name | None = None
    count: Whole | None = Field(default=None, ge=1, le=MOST_LABELS)

    @model_validator(mode="after")
    def _has_its_fields(self) -> Self:
        needed = _NEEDED.get(self.event, "")
        if needed and getattr(self, needed) is None:
            raise ValueError(f"needs {needed}: its name")
        if self.event == "labels" and self.count is None:
            raise ValueError("needs count: how many new labels start the schedule")
        for field in _FIELDS:
            allowed = field == needed or field in _OPTIONAL.get(self.event, ())
            if getattr(self, field) is not None and not allowed:
                raise ValueError(f"has no {field} with the event {self.event}")
        if self.stage is not None and self.alias is not None:
            raise ValueError("has a stage or an alias, not both")
        return self


class TriggerOut(AnswerSchema):
    """The event that starts a schedule."""

    event: EventKind
    dataset: str | None = None
    model: str | None = None
    stage: str | None = None
    alias: str | None = None
    endpoint: str | None = None
    count: int | None = None


def trigger_text(trigger: TriggerIn | TriggerOut) -> str:
    """Return a trigger in words: `new version of dataset digits`."""
    if trigger.event == "dataset_version":
        return f"new version of dataset {trigger.dataset}"
    if trigger.event == "model_version":
        return f"new version of model {trigger.model}"
    if trigger.event == "drift_alert":
        return f"drift alert of endpoint {trigger.endpoint}"
    if trigger.event == "labels":
        return f"{trigger.count} new labels of endpoint {trigger.endpoint}"
    if trigger.event == "webhook":
        return "webhook"
    if trigger.stage:
        return f"version of model {trigger.model} that enters {trigger.stage}"
    if trigger.alias:
        return f"version of model {trigger.model} that gets the alias {trigger.alias}"
    return f"change of a stage or an alias of model {trigger.model}"
