"""Forms for monitoring: thresholds, notification channels, predictions as data."""

from django import forms

from slipway.schemas.monitoring import LabelType, ModelTask, MonitorSettings

_TEXT = {"autocomplete": "off", "spellcheck": "false"}


TASKS = {
    "classification": "Classification",
    "probability": "Probability",
    "regression": "Regression",
    "forecast": "Forecast",
    "ranking": "Ranking",
    "multi_label": "Multi-label",
}


class MonitorSettingsForm(forms.Form):
    """The commonly changed monitor settings. The API has all of them."""

    task = forms.ChoiceField(
        label="Task",
        required=False,
        choices=[("", "Inferred"), *((one.value, TASKS[one.value]) for one in ModelTask)],
        help_text="How predictions are compared with labels. Quality is recomputed.",
    )
    label_type = forms.ChoiceField(
        label="Label type",
        required=False,
        choices=[("", "Inferred"), *((one.value, one.value.capitalize()) for one in LabelType)],
        help_text="Boolean labels can be true, false, 1 or 0. Text preserves leading zeros.",
    )
    min_accuracy = forms.FloatField(
        label="Minimum accuracy",
        required=False,
        min_value=0,
        max_value=1,
        help_text="Between 0 and 1. Empty: measured accuracy is compared with its estimate.",
    )
    max_mean_error = forms.FloatField(
        label="Maximum mean absolute error",
        required=False,
        min_value=0,
        max_value=1e300,
        help_text="For regression and forecasts.",
    )
    max_error_percent = forms.FloatField(
        label="Maximum errors, in percent",
        required=False,
        min_value=0.001,
        max_value=100,
        help_text="Over the last 15 minutes.",
    )
    max_p95_ms = forms.FloatField(
        label="Maximum p95 latency, in ms", required=False, min_value=0.001, max_value=1e9
    )
    keep_days = forms.IntegerField(
        label="Retention of predictions, in days", min_value=1, max_value=3650
    )
    watch_drift = forms.BooleanField(label="Alert on input drift", required=False)
    watch_outputs = forms.BooleanField(label="Alert on output drift", required=False)

    @classmethod
    def of(cls, settings: MonitorSettings) -> dict[str, object]:
        """Return the settings as a form begins with them."""
        return {name: getattr(settings, name) for name in cls.base_fields}


class NewChannel(forms.Form):
    """New notification channel for alerts."""

    kind = forms.ChoiceField(
        choices=[("email", "E-mail"), ("webhook", "Webhook"), ("slack", "Slack")]
    )
    target = forms.CharField(
        label="Address",
        max_length=2000,
        help_text="E-mail address of a member, or an https address.",
        widget=forms.TextInput(attrs=_TEXT),
    )


class LabelUpload(forms.Form):
    """A file of labels."""

    file = forms.FileField(
        label="Label file",
        help_text=(
            "CSV, JSON lines or Parquet with the columns <code>prediction_id</code> or "
            "<code>own_id</code>, <code>value</code>, and <code>row</code> for requests of "
            "several rows. Repeated labels count once; empty values are skipped."
        ),
        widget=forms.ClearableFileInput(attrs={"accept": ".csv,.jsonl,.ndjson,.parquet,.gz"}),
    )


class SelectionForm(forms.Form):
    """Predictions with labels as the next version of a dataset."""

    dataset = forms.CharField(
        max_length=63,
        help_text=(
            "Created if it does not exist. Contains labelled predictions that match the filters."
        ),
        widget=forms.TextInput(attrs=_TEXT),
    )
