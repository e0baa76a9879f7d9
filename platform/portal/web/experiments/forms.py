"""Forms of runs: name and notes, tags, saved views."""

from typing import Any

from django import forms
from pydantic import ValidationError

from portal.core.validation_messages import validation_predicate
from slipway.schemas.experiments import RunChange

_TEXT = {"autocomplete": "off", "spellcheck": "false"}


class RunDetails(forms.Form):
    """Name and notes of a run."""

    name = forms.CharField(max_length=250, widget=forms.TextInput(attrs=_TEXT))
    note = forms.CharField(
        label="Notes",
        required=False,
        max_length=8_000,
        help_text="Markdown: headings, lists, tables, links and code.",
        widget=forms.Textarea(attrs={"rows": 14}),
    )


class RunTag(forms.Form):
    """A tag to set on runs, or to remove from them."""

    tag_name = forms.CharField(label="Tag", max_length=250, widget=forms.TextInput(attrs=_TEXT))
    tag_value = forms.CharField(
        label="Value", required=False, max_length=8_000, widget=forms.TextInput(attrs=_TEXT)
    )
    do = forms.CharField(required=False, max_length=10)

    tags: dict[str, str | None]

    def clean(self) -> dict[str, Any]:
        """Check the name as the API does."""
        data = super().clean() or {}
        if self.errors:
            return data
        value = None if data["do"] == "remove" else data["tag_value"]
        try:
            change = RunChange.model_validate({"tags": {data["tag_name"]: value}})
        except ValidationError as error:
            self.add_error("tag_name", f"The name {validation_predicate(error.errors()[0])}.")
            return data
        self.tags = change.tags or {}
        return data


class NewView(forms.Form):
    """A view of runs to save."""

    name = forms.CharField(max_length=100, widget=forms.TextInput(attrs=_TEXT))
    query = forms.CharField(required=False, max_length=8_000, widget=forms.HiddenInput)
    experiment = forms.IntegerField(
        required=False, min_value=1, max_value=2**31 - 1, widget=forms.HiddenInput
    )
    private = forms.BooleanField(required=False)
