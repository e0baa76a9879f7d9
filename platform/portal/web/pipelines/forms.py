"""Forms of pipelines: the decision about a step that waits for approval."""

from typing import Any

from django import forms
from pydantic import ValidationError

from portal.core.validation_messages import validation_predicate
from slipway.schemas.pipelines import StepDecision


class DecisionForm(forms.Form):
    """A decision about a step. `decision` is the request once the form is valid."""

    verdict = forms.ChoiceField(
        choices=[("approve", "Approve"), ("decline", "Decline")], widget=forms.HiddenInput
    )
    note = forms.CharField(
        required=False,
        max_length=500,
        help_text="Shown with the step.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    decision: StepDecision

    @classmethod
    def of_step(cls, step: str, data: Any = None) -> "DecisionForm":
        """Return the form of a step. A page may have the forms of several steps."""
        return cls(data, auto_id=f"decide-{step}-%s")

    def clean(self) -> dict[str, Any]:
        """Build the request, which refuses characters that cannot be stored."""
        data = self.cleaned_data
        if self.errors:
            return data
        try:
            self.decision = StepDecision(verdict=data["verdict"], note=data["note"])
        except ValidationError as error:
            fault = error.errors(include_input=False, include_url=False)[0]
            self.add_error("note", f"This {validation_predicate(fault)}.")
        return data
