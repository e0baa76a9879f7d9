"""Forms about endpoints: create, promote, change, keys, try it."""

from typing import Any

from django import forms
from pydantic import ValidationError

from portal.core.validation_messages import validation_predicate
from portal.web.base.environments import EnvironmentField
from portal.web.base.hardware import TierField
from portal.web.base.pools import PoolField
from slipway.schemas.base import RequestSchema
from slipway.schemas.endpoints import (
    EndpointChange,
    EndpointIn,
    EndpointKeyIn,
    Plan,
    PlanKind,
    Promote,
    TryIn,
)
from slipway.schemas.json_text import read_json

_TEXT = {"autocomplete": "off", "spellcheck": "false"}
_ANY = {"step": "any"}
_MIB = 1024**2
MAX_TRIED_CHARACTERS = 2_000_000
PLANS = (
    (PlanKind.CANARY.value, "Canary: shift traffic step by step"),
    (PlanKind.ALL_AT_ONCE.value, "All at once, with automatic rollback"),
    (PlanKind.SHADOW.value, "Shadow: mirror predictions and compare, without serving them"),
)
CAPTURES = (
    ("on", "On: written to disk within 100 ms"),
    ("strict", "Strict: written to disk before the response is sent"),
    ("off", "Off: nothing is stored"),
)


FALLBACKS = (
    ("standby", "Serve from a warm earlier revision, and mark the response"),
    ("off", "Return 503 with Retry-After"),
)
_FALLBACK_LABEL = "When no replica of a revision with traffic is ready"
_ENVIRONMENT_HELP = "It must have the packages of the model; those of the model server are added."
_FALLBACK_HELP = "Responses of a standby have the header x-slipway-fallback."


def add_schema_errors(form: forms.Form, error: ValidationError, names: dict[str, str]) -> None:
    """Add a schema's validation errors to their fields. `names` maps its names to fields."""
    for fault in error.errors():
        place = ".".join(str(part) for part in fault["loc"])
        field = names.get(place, place)
        known = field if field in form.fields else None
        form.add_error(known, f"This {validation_predicate(fault)}.")


class SchemaForm(forms.Form):
    """A form whose clean data are one request of the API, in `payload`."""

    names: dict[str, str] = {}
    payload: Any = None

    def facts(self, data: dict[str, Any]) -> RequestSchema:
        """Return the request, or raise pydantic's ValidationError."""
        raise NotImplementedError

    def clean(self) -> dict[str, Any]:
        """Build the request. Validation errors of the schema are shown next to their fields."""
        data = super().clean() or {}
        if not self.errors:
            try:
                self.payload = self.facts(data)
            except ValidationError as error:
                add_schema_errors(self, error, self.names)
        return data


class NewEndpoint(SchemaForm):
    """An endpoint to make."""

    name = forms.CharField(
        max_length=48,
        help_text="Part of its address; lower-case letters, digits and hyphens.",
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "digits"}),
    )
    model = forms.CharField(max_length=200, widget=forms.TextInput(attrs=_TEXT))
    version = forms.CharField(
        required=False,
        max_length=100,
        help_text="A number, an alias or a stage. Empty: the latest version.",
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "Production", "list": "versions"}),
    )
    environment = EnvironmentField(help_text=_ENVIRONMENT_HELP)
    pool = PoolField()
    tier = TierField()
    min_replicas = forms.IntegerField(
        label="Minimum replicas", min_value=1, max_value=1000, initial=1
    )
    max_replicas = forms.IntegerField(
        label="Maximum replicas", min_value=1, max_value=1000, initial=1
    )
    fallback = forms.ChoiceField(
        label=_FALLBACK_LABEL,
        required=False,
        choices=FALLBACKS,
        widget=forms.Select,
        help_text=_FALLBACK_HELP,
    )

    def facts(self, data: dict[str, Any]) -> EndpointIn:
        """Return the request."""
        return EndpointIn.model_validate(
            {name: value for name, value in data.items() if value not in (None, "")}
        )


class NewRollout(SchemaForm):
    """A version to promote to an endpoint, and by which plan."""

    names = {"plan.percents": "percents", "plan": "percents", "plan.bake_s": "bake_minutes"}

    model = forms.CharField(
        max_length=200, widget=forms.TextInput(attrs={**_TEXT, "list": "models"})
    )
    version = forms.CharField(
        required=False,
        max_length=100,
        help_text="A number, an alias or a stage. Empty: the latest version.",
        widget=forms.TextInput(attrs={**_TEXT, "list": "versions"}),
    )
    environment = EnvironmentField(help_text=_ENVIRONMENT_HELP)
    plan = forms.ChoiceField(
        choices=PLANS,
        initial=PLANS[0][0],
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )
    percents = forms.CharField(
        label="Canary steps, in percent",
        required=False,
        max_length=100,
        initial="1, 10, 50, 100",
        widget=forms.TextInput(attrs={**_TEXT, "inputmode": "numeric"}),
    )
    bake_minutes = forms.FloatField(
        label="Minutes per step",
        initial=5,
        min_value=0,
        max_value=10_080,
        help_text="A problem within this time rolls all traffic back.",
        widget=forms.NumberInput(attrs=_ANY),
    )
    shadow_percent = forms.FloatField(
        label="Predictions mirrored to a shadow, in percent",
        required=False,
        initial=100,
        min_value=0.01,
        max_value=100,
        widget=forms.NumberInput(attrs=_ANY),
    )

    def offer_all_at_once(self) -> None:
        """Offer the one plan possible without a serving revision. The service refuses others."""
        plan = self.fields["plan"]
        plan.initial = PlanKind.ALL_AT_ONCE.value
        plan.widget.choices = [item for item in PLANS if item[0] == plan.initial]
        plan.help_text = "No revision is serving yet, so there is none to share traffic with."

    def clean_percents(self) -> list[int]:
        """Read whole numbers separated by commas or spaces."""
        words = self.cleaned_data["percents"].replace(",", " ").replace("%", " ").split()
        if not all(word.isascii() and word.isdecimal() and len(word) < 4 for word in words):
            raise forms.ValidationError("Whole numbers from 1 to 100, such as 1, 10, 50, 100.")
        return [int(word) for word in words]

    def facts(self, data: dict[str, Any]) -> Promote:
        """Return the request."""
        kind = PlanKind(data["plan"])
        plan: dict[str, Any] = {"kind": kind, "bake_s": data["bake_minutes"] * 60}
        if kind is PlanKind.CANARY:
            plan["percents"] = data["percents"]
        elif kind is PlanKind.SHADOW and data["shadow_percent"]:
            plan["shadow_percent"] = data["shadow_percent"]
        return Promote.model_validate(
            {
                "model": data["model"],
                "version": data["version"] or None,
                "environment": data["environment"] or None,
                "plan": Plan.model_validate(plan),
            }
        )


class ChangedEndpoint(SchemaForm):
    """Settings that may change while an endpoint serves. An empty number switches its rule off."""

    names = {
        "limits.max_body_bytes": "max_body_mib",
        "limits.max_in_flight": "max_in_flight",
        "limits.timeout_s": "timeout_s",
        "limits.rate.per_s": "rate_per_s",
        "limits.rate.burst": "burst",
        "rules.max_error_percent": "max_error_percent",
        "rules.max_p99_ms": "max_p99_ms",
        "rules.max_latency_factor": "max_latency_factor",
    }

    min_replicas = forms.IntegerField(label="Minimum replicas", min_value=1, max_value=1000)
    max_replicas = forms.IntegerField(label="Maximum replicas", min_value=1, max_value=1000)
    target_concurrency = forms.IntegerField(
        label="Target concurrency per replica",
        min_value=1,
        max_value=100_000,
        help_text="Above this, another replica starts.",
    )
    target_queue_ms = forms.FloatField(
        label="Target queue time, in milliseconds",
        min_value=0.001,
        max_value=3_600_000,
        help_text="Above this, another replica starts.",
        widget=forms.NumberInput(attrs=_ANY),
    )
    warm_minutes = forms.IntegerField(
        label="Minutes that a replaced revision stays warm",
        min_value=0,
        max_value=1440,
        help_text="Its replicas cost as much as before. 0: stop them when the rollout completes.",
    )
    fallback = forms.ChoiceField(
        label=_FALLBACK_LABEL,
        choices=FALLBACKS,
        widget=forms.Select,
        help_text=_FALLBACK_HELP,
    )
    max_body_mib = forms.FloatField(
        label="Largest request, in MiB",
        min_value=0.001,
        max_value=1024,
        widget=forms.NumberInput(attrs=_ANY),
    )
    max_in_flight = forms.IntegerField(
        label="Maximum concurrent requests",
        min_value=1,
        max_value=100_000,
        help_text="More requests get 503.",
    )
    timeout_s = forms.FloatField(
        label="Request timeout, in seconds",
        min_value=0.001,
        max_value=3600,
        widget=forms.NumberInput(attrs=_ANY),
    )
    rate_per_s = forms.FloatField(
        label="Requests per second",
        required=False,
        min_value=0.001,
        max_value=10_000_000,
        help_text="Over all keys; more requests get 429. Empty: no limit.",
        widget=forms.NumberInput(attrs=_ANY),
    )
    burst = forms.IntegerField(label="Burst", required=False, min_value=1, max_value=10_000_000)
    is_on = forms.BooleanField(label="Roll back a failing revision automatically", required=False)
    max_error_percent = forms.FloatField(
        label="Maximum errors, in percent",
        required=False,
        min_value=0,
        max_value=100,
        widget=forms.NumberInput(attrs=_ANY),
    )
    max_p99_ms = forms.FloatField(
        label="Maximum p99 latency, in milliseconds",
        required=False,
        min_value=0.001,
        max_value=3_600_000,
        widget=forms.NumberInput(attrs=_ANY),
    )
    max_latency_factor = forms.FloatField(
        label="Maximum p99 latency, as a multiple of the previous revision",
        required=False,
        min_value=1,
        max_value=1000,
        widget=forms.NumberInput(attrs=_ANY),
    )
    capture = forms.ChoiceField(
        label="Capture of predictions", choices=CAPTURES, widget=forms.Select
    )

    def facts(self, data: dict[str, Any]) -> EndpointChange:
        """Return the request."""
        rate = data["rate_per_s"] and {
            "per_s": data["rate_per_s"],
            "burst": data["burst"] or max(1, round(data["rate_per_s"])),
        }
        same = (
            *("min_replicas", "max_replicas", "target_concurrency", "target_queue_ms"),
            *("warm_minutes", "fallback", "capture"),
        )
        rules = ("is_on", "max_error_percent", "max_p99_ms", "max_latency_factor")
        return EndpointChange.model_validate(
            {name: data[name] for name in same}
            | {
                "limits": {
                    "max_body_bytes": round(data["max_body_mib"] * _MIB),
                    "max_in_flight": data["max_in_flight"],
                    "timeout_s": data["timeout_s"],
                    "rate": rate or None,
                },
                "rules": {name: data[name] for name in rules},
            }
        )


class NewKeyForm(SchemaForm):
    """A key for clients of an endpoint."""

    names = {"rate.per_s": "rate_per_s", "rate.burst": "burst", "expires_in_days": "expires"}

    name = forms.CharField(
        label="Client",
        max_length=100,
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "web shop"}),
    )
    scope = forms.ChoiceField(
        label="Scope",
        choices=(("predict", "Predict"), ("read", "Only metadata and health")),
        widget=forms.Select,
    )
    expires = forms.IntegerField(
        label="Expires in (days)",
        required=False,
        min_value=1,
        max_value=3650,
        help_text="Empty: valid until it is revoked.",
    )
    rate_per_s = forms.FloatField(
        label="Requests per second",
        required=False,
        min_value=0.001,
        max_value=10_000_000,
        help_text="Empty: the endpoint's limit.",
        widget=forms.NumberInput(attrs=_ANY),
    )

    def facts(self, data: dict[str, Any]) -> EndpointKeyIn:
        """Return the request."""
        per_s = data["rate_per_s"]
        return EndpointKeyIn.model_validate(
            {
                "name": data["name"],
                "scopes": [data["scope"]],
                "expires_in_days": data["expires"],
                "rate": {"per_s": per_s, "burst": max(1, round(per_s))} if per_s else None,
            }
        )


class ReasonForm(forms.Form):
    """Reason for a rollback or a pause."""

    reason = forms.CharField(
        required=False,
        max_length=500,
        help_text="Shown in the events of the endpoint.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class TestRequestForm(SchemaForm):
    """A request to send through the gateway."""

    request = forms.CharField(
        label="Request",
        max_length=MAX_TRIED_CHARACTERS,
        help_text=(
            "A body for /invocations: inputs, instances, dataframe_split or dataframe_records."
        ),
        widget=forms.Textarea(attrs={**_TEXT, "rows": 8, "class": "font-monospace"}),
    )

    def clean_request(self) -> Any:
        """Read JSON."""
        try:
            return read_json(self.cleaned_data["request"])
        except ValueError as error:
            raise forms.ValidationError(f"This is not JSON: {error}.") from error
        except RecursionError as error:
            raise forms.ValidationError("This is nested too deeply.") from error

    def facts(self, data: dict[str, Any]) -> TryIn:
        """Return the request."""
        return TryIn.model_validate({"request": data["request"]})
