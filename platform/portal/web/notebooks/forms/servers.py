"""The forms that launch a notebook server and change it later."""

from typing import Any

from django import forms
from pydantic import ValidationError

from portal.core.validation_messages import validation_predicate
from portal.web.base.environments import EnvironmentField
from portal.web.base.hardware import TierField
from portal.web.base.pools import PoolField
from slipway.schemas.notebook_servers import WORKDAYS, ServerEdit, ServerIn, Weekday

_TEXT = {"autocomplete": "off", "spellcheck": "false"}
_TIME = "%H:%M"
_NO_TIME = {"invalid": "Enter a time such as 08:00."}


class ServerTimes(forms.Form):
    """When a server stops and starts by itself."""

    idle_minutes = forms.IntegerField(
        label="Idle timeout, in minutes",
        min_value=5,
        max_value=10_080,
        help_text=(
            "A busy kernel is never idle; an open browser tab does not count as activity. Tiers "
            "above $1 per hour stop sooner."
        ),
    )
    daily_start = forms.TimeField(
        label="Daily start",
        required=False,
        help_text="In UTC. Empty: manual start.",
        input_formats=[_TIME],
        error_messages=_NO_TIME,
        widget=forms.TimeInput(attrs={"type": "time"}, format=_TIME),
    )
    daily_stop = forms.TimeField(
        label="Daily stop",
        required=False,
        help_text="In UTC, even when busy. JupyterLab warns you five minutes before.",
        input_formats=[_TIME],
        error_messages=_NO_TIME,
        widget=forms.TimeInput(attrs={"type": "time"}, format=_TIME),
    )
    days = forms.MultipleChoiceField(
        label="Days",
        required=False,
        choices=[(day.value, day.value.capitalize()) for day in Weekday],
        initial=[day.value for day in WORKDAYS],
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
    )

    def facts(self) -> dict[str, Any]:
        """Return what was filled in, as the schemas take it."""
        data = self.cleaned_data
        values_by_name = {
            name: value for name, value in data.items() if value not in (None, "", [])
        }
        for name in ("daily_start", "daily_stop"):
            if name in values_by_name:
                values_by_name[name] = values_by_name[name].strftime(_TIME)
        return values_by_name

    def refuse(self, error: ValidationError) -> None:
        """Show validation errors of a schema next to their fields."""
        for fault in error.errors():
            field = str(fault["loc"][0]) if fault["loc"] else ""
            message = f"This {validation_predicate(fault)}."
            self.add_error(field if field in self.fields else None, message)


class EditServer(ServerTimes):
    """Editable settings of a server. `payload` has all of them once the form is valid.

    Of one that runs, the pool, the hardware, the environment and the longest time can be read
    alone.
    """

    pool = PoolField()
    tier = TierField(required=False)
    environment = EnvironmentField(
        help_text="The next start uses it. The packages of JupyterLab are added to it."
    )
    max_hours = forms.FloatField(
        label="Maximum lifetime, in hours",
        required=False,
        min_value=0,
        max_value=720,
        help_text="Empty: until it is idle or you stop it.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    field_order = (
        "pool",
        "tier",
        "environment",
        "idle_minutes",
        "max_hours",
        "daily_start",
        "daily_stop",
        "days",
    )

    def __init__(self, *args: Any, is_at_rest: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.payload: ServerEdit | None = None
        if not is_at_rest:
            for name in ("pool", "tier", "environment", "max_hours"):
                self.fields[name].disabled = True
                self.fields[name].help_text = "Stop the server to change this."

    def clean(self) -> dict[str, Any]:
        """Build the change. Empty fields reset earlier choices."""
        data = super().clean() or {}
        if self.errors:
            return data
        # The form has no picker where there is no pool.
        pool = {"pool": ""} if "pool" in self.data else {}
        try:
            self.payload = ServerEdit.model_validate(
                {"daily_start": "", "daily_stop": "", "max_hours": 0} | pool | self.facts()
            )
        except ValidationError as error:
            self.refuse(error)
        return data


class LaunchServer(ServerTimes):
    """New server: hardware and stop rules. `payload` has all of it once the form is valid."""

    name = forms.CharField(
        max_length=48,
        help_text="Lower-case letters, digits and hyphens; unique among your servers.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    pool = PoolField()
    tier = TierField()
    framework = forms.ChoiceField(
        choices=[("", "none"), ("ray", "Ray")],
        required=False,
        help_text=(
            "Starts a cluster beside JupyterLab, on the same machine, which cells reach by "
            "ray.init(). Its packages must have ray[default]."
        ),
        widget=forms.Select,
    )
    max_hours = forms.FloatField(
        label="Maximum lifetime, in hours",
        required=False,
        min_value=0.01,
        max_value=720,
        help_text="Empty: until it is idle or you stop it.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    environment = EnvironmentField(
        help_text=(
            "The packages of JupyterLab are added to it. Packages that you install with pip "
            "survive restarts either way."
        )
    )
    requirements = forms.CharField(
        label="Own packages",
        required=False,
        max_length=65_536,
        help_text=(
            "The text of a requirements.txt, for this server alone. It is used instead of an "
            "environment."
        ),
        widget=forms.Textarea(attrs={**_TEXT, "rows": 4, "placeholder": "polars\nscikit-learn"}),
    )
    tags = forms.CharField(
        required=False,
        max_length=1200,
        help_text="Such as team=vision; used to break down spend. Separate several with spaces.",
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "team=vision"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.payload: ServerIn | None = None

    def clean_tags(self) -> dict[str, str]:
        """Read name=value, separated by spaces."""
        clean_tags: dict[str, str] = {}
        for text in str(self.cleaned_data["tags"]).split():
            name, separator, value = text.partition("=")
            if not separator:
                raise forms.ValidationError(f"“{text[:40]}” must have the form name=value.")
            clean_tags[name] = value
        return clean_tags

    def clean(self) -> dict[str, Any]:
        """Build the request. Validation errors of the schema are shown next to their fields."""
        data = super().clean() or {}
        if self.errors:
            return data
        try:
            self.payload = ServerIn.model_validate(self.facts())
        except ValidationError as error:
            self.refuse(error)
        return data
