"""Forms of named environments: a new one, a new version, the description."""

from typing import Any

from django import forms

from portal.compute.services.environments import default_python
from portal.web.base.pythons import PythonField, offer_pythons
from slipway.requirement_files.conda import is_conda_text
from slipway.schemas.environments import MAX_REQUIREMENTS_CHARACTERS

_TEXT = {"autocomplete": "off", "spellcheck": "false"}


class EnvironmentVersionForm(forms.Form):
    """Packages of a version, as a text or an uploaded file."""

    requirements = forms.CharField(
        label="Packages",
        required=False,
        max_length=MAX_REQUIREMENTS_CHARACTERS,
        help_text=(
            "The text of a requirements.txt, one package a line, or of an environment.yml or "
            "conda-lock.yml. The first build resolves all exact versions, and every later build "
            "of this version installs the same."
        ),
        widget=forms.Textarea(
            attrs={**_TEXT, "rows": 10, "placeholder": "scikit-learn==1.7.0\npolars>=1.30"}
        ),
    )

    file = forms.FileField(
        label="Or a file",
        required=False,
        help_text="requirements.txt, environment.yml, conda-lock.yml or an @EXPLICIT list. It "
        "replaces the text. If it names wheels or other files, send it with their folder: slipway "
        "env create NAME --code FOLDER.",
    )
    python = PythonField(
        help_text="The versions that nodes of this installation have. A file of conda brings its "
        "own."
    )

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        offer_pythons(self)

    def clean(self) -> dict[str, Any]:
        """Take the packages from the uploaded file, if any. Conda brings its Python."""
        data = super().clean() or self.cleaned_data
        file = data.pop("file", None)
        if file is not None and file.size > MAX_REQUIREMENTS_CHARACTERS:
            self.add_error(
                "file", f"This file has {file.size:,} bytes; at most 1,000,000 are allowed."
            )
        elif file is not None:
            try:
                data["requirements"] = file.read().decode("utf-8-sig")
            except UnicodeDecodeError:
                self.add_error("file", "This file is not UTF-8 text. Choose a file of packages.")
        text = data.get("requirements", "")
        if not text.strip() and not self.errors:
            self.add_error("requirements", "Write one package a line, or choose a file.")
        python = data.get("python") or None
        is_preset = python in (default_python(), self.initial.get("python"))
        data["python"] = None if is_preset and is_conda_text(text) else python
        return data


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
    field_order = ("name", "python", "requirements", "file", "description")
