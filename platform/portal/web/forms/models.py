"""Forms of registered models: register, describe, request approval, promote, project rules."""

from typing import Any

from django import forms
from pydantic import ValidationError

from portal.core.validation_messages import predicate_of_fault
from slipway.schemas.registry import TargetGates, TargetKind
from slipway.schemas.serving import BatchingMode

_TEXT = {"autocomplete": "off", "spellcheck": "false"}

BATCHING_CHOICES = (
    ("", "Merge if golden rows prove that rows do not depend on each other"),
    (BatchingMode.ROWS.value, "rows: merge them into one call"),
    (BatchingMode.REQUESTS.value, "requests: predict each by itself"),
    (BatchingMode.OFF.value, "off: one request at a time"),
)


class RegisterModel(forms.Form):
    """A model of a run to register as the next version."""

    name = forms.RegexField(
        r"\A[^/:\x00-\x1f\x7f]{1,100}\Z",
        label="Model",
        max_length=100,
        help_text="A new name makes a new model; a known one gets its next version.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    run = forms.RegexField(
        r"\A[0-9a-f]{32}\Z",
        label="Run",
        help_text="The id of the run that logged it, as its page shows it.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    path = forms.CharField(
        label="Path in the run",
        max_length=300,
        initial="model",
        help_text="The name it was logged under.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    batching = forms.ChoiceField(
        label="Requests that wait together",
        required=False,
        choices=BATCHING_CHOICES,
        help_text="Merge only models in which no row changes the answer to another one.",
        widget=forms.Select,
    )
    description = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(attrs={"rows": 2})
    )


class VersionBatching(forms.Form):
    """The author's statement about merging requests to a version."""

    batching = forms.ChoiceField(
        label="Requests that wait together",
        required=False,
        choices=BATCHING_CHOICES,
        help_text="Endpoints follow with the next promotion of this version.",
        widget=forms.Select,
    )


class ModelCard(forms.Form):
    """Model card: documentation of a model in Markdown."""

    card = forms.CharField(
        label="Model card",
        required=False,
        max_length=100_000,
        help_text="What it is for and what not, its data, its limits. Markdown.",
        widget=forms.Textarea(attrs={"rows": 16}),
    )


class Promotion(forms.Form):
    """Fields of the promotion page. The button that was pressed decides which of them count."""

    sequence = forms.IntegerField(min_value=0, required=False, widget=forms.HiddenInput)
    archive_replaced = forms.BooleanField(required=False)
    note = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(attrs={"rows": 2})
    )
    override_reason = forms.CharField(
        label="Reason to pass closed gates",
        required=False,
        min_length=3,
        max_length=2000,
        help_text="It stands in the audit log, with your name.",
        widget=forms.Textarea(attrs={"rows": 2}),
    )


class ProjectStages(forms.Form):
    """The stages of a project, in order."""

    stages = forms.CharField(
        max_length=600,
        help_text="In order, separated by commas. A stage that holds a version stays.",
        widget=forms.TextInput(attrs=_TEXT),
    )

    def clean_stages(self) -> list[str]:
        """Read names separated by commas."""
        return [name.strip() for name in self.cleaned_data["stages"].split(",") if name.strip()]


class Gates(forms.Form):
    """Promotion gates: conditions for a stage, or for setting an alias."""

    kind = forms.ChoiceField(
        label="Before",
        choices=(("stage", "a version reaches the stage"), ("alias", "the alias is set")),
        widget=forms.Select,
    )
    name = forms.CharField(
        label="Stage or alias",
        max_length=99,
        widget=forms.TextInput(attrs={**_TEXT, "list": "targets", "placeholder": "Production"}),
    )
    signature = forms.BooleanField(
        label="It has a signature",
        required=False,
        help_text="What goes in and what comes out.",
    )
    golden = forms.BooleanField(
        label="Golden predictions are recorded",
        required=False,
        help_text="Inputs with the outputs that training saw; every replica has to repeat them.",
    )
    approval = forms.BooleanField(
        label="Somebody else approves",
        required=False,
        help_text="A maintainer who neither registered the version nor asked for it.",
    )
    metric = forms.CharField(
        label="A job measured",
        required=False,
        max_length=250,
        help_text="The name of a metric. Empty: nothing is measured.",
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "accuracy"}),
    )
    dataset = forms.CharField(
        label="On the data",
        required=False,
        max_length=100,
        help_text="A version such as digits:3, which the job has to have read. "
        "The newest 50 versions are suggested.",
        widget=forms.TextInput(attrs={**_TEXT, "list": "data", "placeholder": "digits:3"}),
    )
    better = forms.ChoiceField(
        label="Better is",
        choices=(("higher", "higher"), ("lower", "lower")),
        widget=forms.Select,
    )
    margin = forms.FloatField(
        label="By at least",
        required=False,
        initial=0,
        help_text="Against the version that is there now; below zero: how much worse it may be.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )

    wanted: TargetGates | None = None

    def clean(self) -> dict[str, Any]:
        """Build the gates. Validation errors of the schema are shown next to their fields."""
        data = super().clean() or {}
        if self.errors:
            return data
        if bool(data["metric"]) != bool(data["dataset"]):
            self.add_error(
                "dataset" if data["metric"] else "metric",
                "A measurement needs both: the metric and the data.",
            )
            return data
        kinds = ("signature", "golden", "approval")
        gates: list[dict[str, Any]] = [{"kind": kind} for kind in kinds if data[kind]]
        if data["metric"]:
            gates.append(
                {
                    "kind": "evaluation",
                    "metric": data["metric"],
                    "dataset": data["dataset"],
                    "higher_is_better": data["better"] == "higher",
                    "margin": data["margin"] or 0.0,
                }
            )
        try:
            self.wanted = TargetGates.model_validate(
                {"kind": TargetKind(data["kind"]), "name": data["name"], "gates": gates}
            )
        except ValidationError as error:
            for fault in error.errors():
                field = str(fault["loc"][-1])
                message = "This is no reference such as digits:3."
                if field != "dataset":
                    message = f"This {predicate_of_fault(fault)}."
                self.add_error(field if field in self.fields else None, message)
        return data


def gates_as_sent(target: TargetGates) -> dict[str, Any]:
    """Return the initial values of the form for a target's gates."""
    result: dict[str, Any] = {"kind": target.kind.value, "name": target.name}
    for gate in target.gates:
        if gate.kind != "evaluation":
            result[gate.kind] = True
        elif "metric" not in result:
            better = "higher" if gate.higher_is_better else "lower"
            result |= {"metric": gate.metric, "dataset": gate.dataset}
            result |= {"better": better, "margin": gate.margin}
    return result
