"""Form of a new batch prediction."""

from typing import Any

from django import forms

from portal.web.base.environments import EnvironmentField
from portal.web.base.hardware import TierField
from portal.web.base.pools import PoolField
from portal.web.endpoints.forms import SchemaForm
from slipway.schemas.batch_predictions import BatchPredictionIn

_TEXT = {"autocomplete": "off", "spellcheck": "false"}
_ON_ERROR = (
    ("stop", "Stop: the first such row ends the job, and no version is made"),
    ("skip", "Skip: it gets no prediction, and its reason in a column"),
)


class NewBatchPrediction(SchemaForm):
    """A dataset to predict with a version of a model. `payload` is the request."""

    names = {"data": "dataset"}

    model = forms.CharField(
        max_length=100, widget=forms.TextInput(attrs={**_TEXT, "list": "models"})
    )
    version = forms.CharField(
        required=False,
        max_length=100,
        help_text="A number, an alias or a stage. Empty: the latest version.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    dataset = forms.CharField(
        max_length=100,
        help_text="A version, such as sales:3. Without a number: the latest.",
        widget=forms.TextInput(attrs={**_TEXT, "list": "datasets", "placeholder": "sales:3"}),
    )
    table = forms.CharField(
        required=False,
        max_length=1000,
        help_text="Only if the version has several.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    output = forms.CharField(
        label="Output dataset",
        max_length=63,
        help_text="Gets a new version with the predictions. It is created if there is none.",
        widget=forms.TextInput(
            attrs={**_TEXT, "list": "datasets", "placeholder": "sales-predictions"}
        ),
    )
    keep = forms.CharField(
        label="Columns to keep",
        required=False,
        help_text="One per line, beside the predictions. Empty: all.",
        widget=forms.Textarea(attrs={**_TEXT, "rows": 2, "placeholder": "id"}),
    )
    columns = forms.CharField(
        label="Columns for the model",
        required=False,
        help_text="One per line. Empty: the inputs of its signature, or all.",
        widget=forms.Textarea(attrs={**_TEXT, "rows": 2}),
    )
    on_error = forms.ChoiceField(
        label="Rows that the model refuses",
        choices=_ON_ERROR,
        initial="stop",
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )
    environment = EnvironmentField(help_text="It must have the packages of the model.")
    pool = PoolField()
    tier = TierField()
    preemptible = forms.BooleanField(
        label="Preemptible: cheaper, may be moved for other work",
        required=False,
        help_text="When it is moved, it starts again from the first row. Not in pools.",
    )

    def facts(self, data: dict[str, Any]) -> BatchPredictionIn:
        """Return the request."""
        return request_of(data)


def request_of(data: dict[str, Any]) -> BatchPredictionIn:
    """Return the request of fields by name. Raises pydantic's ValidationError."""
    lists = {name: _lines(data.get(name)) for name in ("keep", "columns")}
    fields = {name: value for name, value in data.items() if name not in {*lists, "dataset"}}
    fields["data"] = data.get("dataset")
    given = {name: value for name, value in (fields | lists).items() if value not in (None, "")}
    return BatchPredictionIn.model_validate(given)


def _lines(text: Any) -> list[str] | None:
    return [line.strip() for line in str(text or "").splitlines() if line.strip()] or None
