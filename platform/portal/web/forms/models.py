"""Forms about registered models: register, describe, ask, promote."""

from django import forms

_TEXT = {"autocomplete": "off", "spellcheck": "false"}


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
    description = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(attrs={"rows": 2})
    )


class ModelCard(forms.Form):
    """What people should know of a model."""

    card = forms.CharField(
        label="Model card",
        required=False,
        max_length=100_000,
        help_text="What it is for and what not, its data, its limits. Markdown.",
        widget=forms.Textarea(attrs={"rows": 16}),
    )


class Promotion(forms.Form):
    """What is sent from the page of a promotion; which of it counts depends on the button."""

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
