"""Forms of reports: title and blocks, with the version they were edited from."""

import re
from typing import Any

import orjson
from django import forms
from pydantic import ValidationError

from portal.core.validation_messages import validation_predicate
from slipway.schemas.reports import ReportIn

_MOST_JSON = 400_000
_BLOCK_PLACES = 2
_RUN_ID = re.compile("[0-9a-f]{32}")


def is_run_id(text: str) -> bool:
    """Return whether a text has the form of a run's id."""
    return _RUN_ID.fullmatch(text) is not None


class ReportForm(forms.Form):
    """A report. `blocks` is JSON, which the editor of the page writes."""

    title = forms.CharField(
        max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off", "autofocus": True})
    )
    blocks = forms.CharField(
        required=False,
        max_length=_MOST_JSON,
        help_text="A list of blocks as JSON, as in the API.",
        widget=forms.Textarea(attrs={"rows": 20, "spellcheck": "false"}),
    )
    version = forms.IntegerField(
        required=False, min_value=1, max_value=2**31 - 2, widget=forms.HiddenInput
    )

    spec: ReportIn

    def clean(self) -> dict[str, Any]:
        """Validate the blocks as the API does."""
        data = super().clean() or {}
        if self.errors:
            return data
        try:
            blocks = orjson.loads(data["blocks"] or "[]")
        except orjson.JSONDecodeError as error:
            self.add_error("blocks", f"This is not JSON: {error.msg} in line {error.lineno}.")
            return data
        try:
            self.spec = ReportIn.model_validate({"title": data["title"], "blocks": blocks})
        except ValidationError as error:
            for fault in error.errors(include_url=False)[:10]:
                self.add_error(*_fault(fault))
        return data


def _fault(fault: Any) -> tuple[str, str]:
    """Return the field and the sentence of a validation error."""
    place, reason = fault["loc"], validation_predicate(fault)
    if place[:1] == ("title",):
        return "title", f"The title {reason}."
    if len(place) < _BLOCK_PLACES:
        return "blocks", f"The list of blocks {reason}."
    kind, *names = [str(part) for part in place[_BLOCK_PLACES:]] or ["block"]
    field = f", {'.'.join(names)}" if names else ""
    return "blocks", f"Block {int(place[1]) + 1} ({kind}{field}) {reason}."
