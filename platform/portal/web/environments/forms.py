"""Forms of named environments: a new one, a new version, the description."""

from typing import Any

from django import forms

from portal.web.base.pythons import PythonField, offer_pythons

_TEXT = {"autocomplete": "off", "spellcheck": "false"}
_MOST_CHARACTERS = 65_536


class EnvironmentVersionForm(forms.Form):
    """Packages of a version."""

    requirements = forms.CharField(
        label="Packages",
        max_length=_MOST_CHARACTERS,
        help_text=(
            "The text of a requirements.txt, one package a line. The first build resolves all "
            "exact versions, and every later build of this version installs the same."
        ),
        widget=forms.Textarea(
            attrs={**_TEXT, "rows": 10, "placeholder": "scikit-learn==1.7.0\npolars>=1.30"}
        ),
    )

    python = PythonField(help_text="The versions that nodes of this installation have.")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        offer_pythons(self)

    def clean_python(self) -> str | None:
        """Return None where the form leaves it out."""
        return self.cleaned_data["python"] or None


class EnvironmentDescriptionForm(forms.Form):
    """Description of an environment."""

    description = forms.CharField(
        required=False,
        max_length=2000,
        help_text="Purpose of the environment. Markdown.",
        widget=forms.Textarea(attrs={"rows": 3, "autocomplete": "off"}),
    )


class NewEnvironmentForm(EnvironmentDescriptionForm, EnvironmentVersionForm):
    """A new environment with the packages of its first version."""

    name = forms.CharField(
        max_length=48,
        help_text="Lower-case letters, digits and hyphens, such as vision. It does not change.",
        widget=forms.TextInput(attrs={**_TEXT, "autofocus": True}),
    )
    field_order = ("name", "python", "requirements", "description")
