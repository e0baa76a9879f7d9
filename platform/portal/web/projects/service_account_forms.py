"""Forms of service accounts and their tokens."""

from django import forms

from portal.web.projects.forms import ROLE_MEANINGS
from slipway.schemas.accounts import PRESET_SCOPES, SERVICE_SCOPES, Role, TokenPreset

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}
_ROLES = [
    (Role.VIEWER.value, f"Viewer: {ROLE_MEANINGS[Role.VIEWER]}"),
    (Role.CONTRIBUTOR.value, f"Contributor: {ROLE_MEANINGS[Role.CONTRIBUTOR]}"),
    (Role.MAINTAINER.value, "Maintainer: can also read the audit log and empty the trash"),
]
_PRESETS = [
    (TokenPreset.CI.value, "CI: submit work, register and promote models"),
    (TokenPreset.MLFLOW.value, "MLflow: log runs and read them"),
    (TokenPreset.READ_ONLY.value, "Read only"),
    (TokenPreset.EVERYTHING.value, "Everything a service account can do"),
]
_DAYS = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "A year"))


def preset_text(scopes: list[str]) -> str:
    """Return what a token may do in a few words: its preset, or its scopes."""
    for preset, label in _PRESETS:
        offered = SERVICE_SCOPES.intersection(PRESET_SCOPES[TokenPreset(preset)])
        if offered == set(scopes):
            return label.partition(":")[0]
    return ", ".join(scopes)


class EditServiceAccount(forms.Form):
    """Role and description of a service account."""

    role = forms.ChoiceField(
        choices=_ROLES,
        initial=Role.CONTRIBUTOR.value,
        help_text="In this project alone. It never invites people, makes tokens or approves.",
    )
    description = forms.CharField(
        required=False,
        max_length=500,
        help_text="What it is for, such as “Trains the model each night”.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    def clean_role(self) -> Role:
        """Return the role as a value of the enum."""
        return Role(self.cleaned_data["role"])


class NewServiceAccount(EditServiceAccount):
    """A service account to create."""

    name = forms.CharField(
        max_length=48,
        help_text="Lower-case letters, digits and hyphens, such as nightly. It cannot change, and "
        "is used once in this project.",
        widget=forms.TextInput(attrs=_PLAIN | {"autofocus": True}),
    )
    field_order = ("name", "role", "description")


class NewServiceToken(forms.Form):
    """A token of a service account to create."""

    name = forms.CharField(
        max_length=100,
        help_text="Where it is used, such as “GitHub Actions”.",
        widget=forms.TextInput(attrs=_PLAIN),
    )
    preset = forms.ChoiceField(label="What may it do?", choices=_PRESETS)
    expires_in_days = forms.TypedChoiceField(
        label="Expires in", choices=_DAYS, coerce=int, initial=90
    )

    def clean_preset(self) -> TokenPreset:
        """Return the preset as a value of the enum."""
        return TokenPreset(self.cleaned_data["preset"])
