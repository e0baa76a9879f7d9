"""Forms of notebooks: a branch, a run as a job."""

from typing import Any

from django import forms
from django.http import QueryDict
from pydantic import ValidationError

from portal.core.validation_messages import validation_predicate
from portal.notebooks.models import NotebookVersion
from portal.notebooks.services.files_runs import NotebookRunRequest
from portal.web.base.environments import EnvironmentField
from portal.web.base.hardware import TierField
from portal.web.base.pools import PoolField
from portal.web.jobs.forms import pairs
from slipway.schemas.notebook_files import RunIn

_TEXT = {"autocomplete": "off", "spellcheck": "false"}


class NewBranch(forms.Form):
    """Path of a new notebook."""

    path = forms.CharField(
        max_length=500,
        help_text="Path in the project, ending in .ipynb.",
        widget=forms.TextInput(attrs=_TEXT),
    )


class RunNotebook(forms.Form):
    """A notebook as a job. `wish` is the request once the form is valid."""

    pool = PoolField()
    tier = TierField()
    params = forms.CharField(
        label="Parameters",
        required=False,
        max_length=65_536,
        strip=False,
        help_text="One name=value per line; overrides the cell tagged “parameters”.",
        widget=forms.Textarea(attrs={**_TEXT, "rows": 5, "placeholder": "rate=0.1"}),
    )
    max_hours = forms.FloatField(
        label="Maximum lifetime, in hours",
        required=False,
        min_value=0.01,
        max_value=8760,
        help_text="Empty: no limit.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    name = forms.CharField(
        required=False,
        max_length=100,
        help_text="Empty: the name of the notebook.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    environment = EnvironmentField(help_text="It must include papermill and ipykernel.")
    requirements = forms.CharField(
        label="Own packages",
        required=False,
        max_length=65_536,
        help_text=(
            "The text of a requirements.txt that includes papermill and ipykernel. It is used "
            "instead of an environment."
        ),
        widget=forms.Textarea(attrs={**_TEXT, "rows": 4, "placeholder": "papermill\nipykernel"}),
    )

    def __init__(
        self, data: QueryDict | None, *, version: NotebookVersion, tier: str, **kwargs: Any
    ) -> None:
        lines = "\n".join(f"{name}={value}" for name, value in version.parameters)
        super().__init__(data, initial={"tier": tier, "params": lines}, **kwargs)
        self.wish = NotebookRunRequest(purpose="run")

    def clean_params(self) -> dict[str, str]:
        """Read a line each."""
        return pairs([line for line in self.cleaned_data["params"].splitlines() if line.strip()])

    def clean(self) -> dict[str, Any]:
        """Build the request. Validation errors of the schema are shown next to their fields."""
        data = super().clean() or {}
        if self.errors:
            return data
        try:
            requested = RunIn.model_validate(
                {name: value for name, value in data.items() if value not in (None, "")}
            )
        except ValidationError as error:
            for fault in error.errors():
                field = str(fault["loc"][0]) if fault["loc"] else ""
                message = f"This {validation_predicate(fault)}."
                self.add_error(field if field in self.fields else None, message)
            return data
        self.wish = NotebookRunRequest(
            purpose="run",
            tier=requested.tier,
            name=requested.name,
            params=requested.params,
            requirements=requested.requirements,
            environment=requested.environment,
            max_hours=requested.max_hours,
            pool=requested.pool,
        )
        return data
