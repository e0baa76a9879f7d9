"""Forms of schedules: a new one, and changes to one."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django import forms
from django.http import QueryDict
from pydantic import ValidationError

from portal.core.validation_messages import validation_predicate
from portal.pipelines.models import ProjectSchedule
from slipway.schemas.base import RequestSchema
from slipway.schemas.schedules import (
    DEFAULT_MISSED,
    DEFAULT_OVERLAP,
    DEFAULT_ZONE,
    ScheduleEdit,
    ScheduleIn,
)

_MISSED = (
    ("once", "Run once for all of them"),
    ("skip", "Skip them"),
    ("all", "Run all, one after the other (the last 100)"),
)
_OVERLAPS = (
    ("skip", "Skip the new run"),
    ("queue", "Queue the new run"),
    ("cancel", "Cancel the old run"),
)
_EVENTS = (
    ("", "At the times of a cron expression"),
    ("dataset_version", "For each new version of a dataset"),
    ("model_version", "For each new version of a model"),
    ("model_stage", "When a version of a model changes its stage or gets an alias"),
    ("drift_alert", "When a drift alert of an endpoint opens"),
    ("labels", "For a number of new labels of an endpoint"),
    ("webhook", "When a secret URL is called (webhook)"),
)
# Fields of a trigger that the name in the form stands for.
_SUBJECTS = {
    "dataset_version": "dataset",
    "model_version": "model",
    "model_stage": "model",
    "drift_alert": "endpoint",
    "labels": "endpoint",
}
_PLAIN = {"autocomplete": "off", "spellcheck": "false"}
# Fields of a request by the first characters of an id. All other ids are those of jobs.
_KINDS = {"swp_": "sweep", "ppr_": "pipeline_run"}
FRESH = {
    "cron": "0 2 * * *",
    "zone": DEFAULT_ZONE,
    "missed": DEFAULT_MISSED,
    "overlap": DEFAULT_OVERLAP,
}


# With fewer payers than that, there is nothing to choose.
_CHOICE = 2
_START = ("event", "subject", "target", "cron", "zone")


def trigger_fields(schedule: ProjectSchedule) -> dict[str, str]:
    """Return the trigger of a schedule as the fields of the form have it."""
    trigger = schedule.trigger or {}
    alias = f"@{trigger['alias']}" if "alias" in trigger else ""
    return {
        "event": schedule.event,
        "subject": trigger.get(_SUBJECTS.get(schedule.event, ""), ""),
        "target": trigger.get("stage") or trigger.get("count") or alias,
    }


class ScheduleForm(forms.Form):
    """Settings of a schedule. `template` is the id of what it repeats."""

    template = forms.CharField(
        label="Job, sweep or run of a pipeline to repeat",
        max_length=32,
        help_text="Its id. Each run has the same code, parameters, environment and hardware.",
        widget=forms.TextInput(attrs=_PLAIN | {"list": "templates"}),
    )
    parameters = forms.CharField(
        label="Parameters of the pipeline",
        required=False,
        max_length=20_000,
        help_text="One NAME=VALUE a line, such as rows=2000. Others stay as they are.",
        widget=forms.Textarea(attrs=_PLAIN | {"rows": 3}),
    )
    event = forms.ChoiceField(label="Starts", choices=_EVENTS, required=False)
    subject = forms.CharField(
        label="Dataset, model or endpoint",
        required=False,
        max_length=256,
        help_text="The name of what the event is about. Not for times and webhooks.",
        widget=forms.TextInput(attrs=_PLAIN),
    )
    target = forms.CharField(
        label="Stage, @alias or number",
        required=False,
        max_length=256,
        help_text="Production or @champion of a model, empty for any change. Number of labels.",
        widget=forms.TextInput(attrs=_PLAIN),
    )
    cron = forms.CharField(
        label="Cron expression",
        required=False,
        max_length=100,
        help_text="Minute, hour, day of the month, month, day of the week. 0 2 * * MON-FRI is "
        "02:00 from Monday to Friday, */15 * * * * every 15 minutes.",
        widget=forms.TextInput(attrs=_PLAIN),
    )
    zone = forms.CharField(
        label="Time zone",
        required=False,
        max_length=64,
        help_text="Such as Europe/Berlin.",
        widget=forms.TextInput(attrs=_PLAIN | {"list": "zones"}),
    )
    missed = forms.ChoiceField(label="Runs missed while Slipway was down", choices=_MISSED)
    overlap = forms.ChoiceField(label="If the run before still goes on", choices=_OVERLAPS)
    run_as = forms.ChoiceField(
        label="Paid by",
        required=False,
        help_text="A service account runs everything with its own role, also when people leave.",
    )

    def __init__(self, *args: Any, payers: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if len(payers) < _CHOICE:
            del self.fields["run_as"]
        else:
            self.fields["run_as"].choices = payers  # type: ignore[attr-defined]

    def clean_parameters(self) -> dict[str, Any]:
        """Read the lines. A value is JSON, or else a text."""
        values: dict[str, Any] = {}
        for line in self.cleaned_data["parameters"].splitlines():
            name, equals, text = line.partition("=")
            if line.strip() and not equals:
                raise forms.ValidationError(f"Write {line[:80]} as NAME=VALUE.")
            if equals:
                values[name.strip()] = text.strip()
                with suppress(ValueError):
                    values[name.strip()] = json.loads(text)
        return values

    def start_of(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the times or the trigger, as requests have them."""
        event = data["event"]
        if not event:
            return {"cron": data["cron"], "zone": data["zone"] or DEFAULT_ZONE}
        trigger: dict[str, Any] = {"event": event}
        if event in _SUBJECTS:
            trigger[_SUBJECTS[event]] = data["subject"]
        if event == "labels":
            count = data["target"]
            trigger["count"] = int(count) if count.isdecimal() else count
        if event == "model_stage" and data["target"]:
            name = data["target"]
            trigger["alias" if name.startswith("@") else "stage"] = name.removeprefix("@")
        return {"trigger": trigger}

    def read(self, schema: type[RequestSchema], data: dict[str, Any]) -> Any:
        """Return the request of clean values. Errors of the schema are next to their fields."""
        own = ("template", "parameters", "event", "subject", "target", "cron", "zone")
        values = {key: value for key, value in data.items() if key not in own}
        if data.get("template"):
            values[_KINDS.get(data["template"][:4], "job")] = data["template"]
        if not values.get("run_as"):
            values.pop("run_as", None)
        values |= self.start_of(data)
        if data["parameters"]:
            values["parameters"] = data["parameters"]
        try:
            return schema.model_validate(values)
        except ValidationError as error:
            for fault in error.errors(include_input=False, include_url=False):
                field = str(fault["loc"][0]) if fault["loc"] else "template"
                field = "subject" if field == "trigger" else field
                text = fault["msg"].removeprefix("Value error, ")
                is_own = fault["type"] == "value_error"
                message = f"This {text}." if is_own else f"This {validation_predicate(fault)}."
                self.add_error(field if field in self.fields else "template", message)
        return None


class NewSchedule(ScheduleForm):
    """A schedule to create."""

    name = forms.CharField(
        max_length=48,
        help_text="Lower-case letters, digits and hyphens, such as nightly. It cannot change.",
        widget=forms.TextInput(attrs=_PLAIN | {"autofocus": True}),
    )
    field_order = ("name", "template", "parameters", *_START, "missed", "overlap", "run_as")
    payload: ScheduleIn | None = None

    def clean(self) -> dict[str, Any]:
        """Build the request."""
        data = super().clean() or {}
        if not self.errors:
            self.payload = self.read(ScheduleIn, data)
        return data


class EditSchedule(ScheduleForm):
    """Changes to a schedule. The same work as before is no change."""

    field_order = ("template", "parameters", *_START, "missed", "overlap", "run_as")
    payload: ScheduleEdit | None = None

    def __init__(
        self,
        data: QueryDict | None,
        *,
        schedule: ProjectSchedule,
        payers: Sequence[tuple[str, str]] = (),
    ) -> None:
        initial = {name: getattr(schedule, name) for name in FRESH}
        self.before = schedule.job_id or schedule.sweep_id or schedule.pipeline_run_id or ""
        lines = [f"{name}={json.dumps(value)}" for name, value in schedule.parameters.items()]
        initial |= trigger_fields(schedule)
        initial |= {"template": self.before, "parameters": "\n".join(lines)}
        names = [name for name, _ in payers]
        is_account = schedule.owner.is_service_account and schedule.owner.name in names
        initial |= {"run_as": schedule.owner.name if is_account else next(iter(names), "")}
        super().__init__(data, initial=initial, payers=payers)
        # A pipeline that was not read from a run has no id.
        self.fields["template"].required = bool(self.before)

    def clean(self) -> dict[str, Any]:
        """Build the request."""
        data = super().clean() or {}
        if not self.errors:
            template = "" if data["template"] == self.before else data["template"]
            self.payload = self.read(ScheduleEdit, data | {"template": template})
        return data
