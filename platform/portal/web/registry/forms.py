"""Forms of registered models: register, describe, request approval, promote, project rules."""

from collections.abc import Sequence
from typing import Any, cast

from django import forms
from pydantic import ValidationError

from portal.core.validation_messages import validation_predicate
from portal.registry.logged_models import LoggedModelFacts
from slipway.schemas.registry import TargetGates, TargetKind
from slipway.schemas.serving import BatchingMode

_TEXT = {"autocomplete": "off", "spellcheck": "false"}

BATCHING_CHOICES = (
    ("", "auto: merge requests if golden rows prove that rows are independent"),
    (BatchingMode.ROWS.value, "rows: merge them into one call"),
    (BatchingMode.REQUESTS.value, "requests: predict each request separately"),
    (BatchingMode.OFF.value, "off: one request at a time"),
)


class RegisterModel(forms.Form):
    """A model of a run to register as the next version.

    `source` offers the models that the run logged. Without one, `path` names its files.
    """

    name = forms.RegexField(
        r"\A[^/:\x00-\x1f\x7f]{1,100}\Z",
        label="Model",
        max_length=100,
        help_text="A new name creates a model; an existing one gets a new version.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    run = forms.RegexField(
        r"\A[0-9a-f]{32}\Z",
        label="Run",
        help_text="The id of the run that logged it, as shown on its page.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    source = forms.ChoiceField(label="Logged model", required=False, widget=forms.Select)
    path = forms.CharField(
        label="Path in the run",
        max_length=300,
        required=False,
        initial="model",
        help_text="A folder or a file among the artifacts of the run.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    batching = forms.ChoiceField(
        label="Queued requests",
        required=False,
        choices=BATCHING_CHOICES,
        help_text="Merge only if no row affects the prediction of another.",
        widget=forms.Select,
    )
    description = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(attrs={"rows": 2})
    )

    def __init__(self, data: Any, *, logged: Sequence[LoggedModelFacts], initial: Any) -> None:
        super().__init__(data, initial=initial)
        if logged:
            field = cast("forms.ChoiceField", self.fields["source"])
            field.choices = [(it.source, it.label) for it in logged] + [("", "Another path …")]
        else:
            del self.fields["source"]

    def clean(self) -> dict[str, Any]:
        """Require a model or a path."""
        data = super().clean() or {}
        if not self.errors and not data.get("source") and not data["path"]:
            self.add_error("path", "Enter the path of the model among the artifacts of the run.")
        return data


class VersionBatching(forms.Form):
    """The author's statement about merging requests to a version."""

    batching = forms.ChoiceField(
        label="Queued requests",
        required=False,
        choices=BATCHING_CHOICES,
        help_text="Endpoints apply this with the next promotion of this version.",
        widget=forms.Select,
    )


class ModelCard(forms.Form):
    """Model card: documentation of a model in Markdown."""

    card = forms.CharField(
        label="Model card",
        required=False,
        max_length=100_000,
        help_text="Purpose, data and limits. Markdown.",
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
        label="Reason to override closed gates",
        required=False,
        min_length=3,
        max_length=2000,
        help_text="Recorded in the audit log with your name.",
        widget=forms.Textarea(attrs={"rows": 2}),
    )


class ProjectStages(forms.Form):
    """The stages of a project, in order."""

    stages = forms.CharField(
        max_length=600,
        help_text="In order, separated by commas. Stages in use cannot be removed.",
        widget=forms.TextInput(attrs=_TEXT),
    )

    def clean_stages(self) -> list[str]:
        """Read names separated by commas."""
        return [name.strip() for name in self.cleaned_data["stages"].split(",") if name.strip()]


class Gates(forms.Form):
    """Promotion gates: conditions for a stage, or for setting an alias."""

    kind = forms.ChoiceField(
        label="Before",
        choices=(
            ("stage", "a version reaches the stage"),
            ("alias", "the alias is set"),
        ),
        widget=forms.Select,
    )
    name = forms.CharField(
        label="Stage or alias",
        max_length=99,
        widget=forms.TextInput(attrs={**_TEXT, "list": "targets", "placeholder": "Production"}),
    )
    signature = forms.BooleanField(
        label="Signature required",
        required=False,
        help_text="Input and output columns.",
    )
    golden = forms.BooleanField(
        label="Golden predictions required",
        required=False,
        help_text="Inputs with their expected outputs; every replica must reproduce them.",
    )
    approval = forms.BooleanField(
        label="Approval required",
        required=False,
        help_text="By a maintainer who neither registered the version nor requested it.",
    )
    metric = forms.CharField(
        label="Metric",
        required=False,
        max_length=250,
        help_text="Measured by a job. Empty: no evaluation gate.",
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "accuracy"}),
    )
    dataset = forms.CharField(
        label="Dataset version",
        required=False,
        max_length=100,
        help_text=(
            "Such as digits:3; the job must have read it. The newest 50 versions are suggested."
        ),
        widget=forms.TextInput(attrs={**_TEXT, "list": "data", "placeholder": "digits:3"}),
    )
    better = forms.ChoiceField(
        label="Better value",
        choices=(("higher", "higher"), ("lower", "lower")),
        widget=forms.Select,
    )
    margin = forms.FloatField(
        label="Minimum improvement",
        required=False,
        initial=0,
        help_text="Over the current version; a negative value is how much worse it may be.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )

    payload: TargetGates | None = None

    def clean(self) -> dict[str, Any]:
        """Build the gates. Validation errors of the schema are shown next to their fields."""
        data = super().clean() or {}
        if self.errors:
            return data
        if bool(data["metric"]) != bool(data["dataset"]):
            self.add_error(
                "dataset" if data["metric"] else "metric",
                "An evaluation needs both a metric and a dataset version.",
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
            self.payload = TargetGates.model_validate(
                {"kind": TargetKind(data["kind"]), "name": data["name"], "gates": gates}
            )
        except ValidationError as error:
            for fault in error.errors():
                field = str(fault["loc"][-1])
                message = "Use a reference such as digits:3."
                if field != "dataset":
                    message = f"This {validation_predicate(fault)}."
                self.add_error(field if field in self.fields else None, message)
        return data


def gates_form_initial(target: TargetGates) -> dict[str, Any]:
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
