"""Forms of one's own settings, of secrets, and of the administration of people."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils.html import format_html
from django.utils.safestring import SafeString

from portal.accounts.models import Project, User
from portal.accounts.models.tenancy import ProjectQuerySet
from slipway.schemas.accounts import Scope, TokenPreset, preset_of_scopes, scopes_of_preset

SCOPE_MEANINGS = {
    Scope.PROJECTS_READ: "See your projects, teams and members",
    Scope.PROJECTS_WRITE: "Create, edit and archive projects and teams; set budgets",
    Scope.MEMBERS_WRITE: "Invite people, change roles, remove members",
    Scope.SECRETS_WRITE: "Set and delete project secrets",
    Scope.TOKENS_READ: "List your API tokens",
    Scope.TOKENS_WRITE: "Create and revoke API tokens",
    Scope.AUDIT_READ: "Read the audit log you have access to",
    Scope.FILES_READ: "Download datasets, notebook files and other files",
    Scope.FILES_WRITE: "Upload datasets, notebook files and other files",
    Scope.WORKLOADS_READ: "See jobs, notebook servers, endpoints, their logs and their spend",
    Scope.WORKLOADS_WRITE: "Run, change and stop jobs, notebook servers and endpoints",
    Scope.MODELS_PROMOTE: "Promote models, and approve promotions",
    Scope.EXPERIMENTS_READ: "Read experiments, runs and models, with MLflow too",
    Scope.EXPERIMENTS_WRITE: "Log runs and register models, with MLflow too",
    Scope.ADMIN: "Administer this installation",
}
PRESET_MEANINGS = {
    TokenPreset.COMMAND_LINE: (
        "Command line",
        "Everything that the slipway command and the SDK can do as you.",
    ),
    TokenPreset.MLFLOW: (
        "MLflow",
        "Log runs and register models with the MLflow client, read experiments.",
    ),
    TokenPreset.READ_ONLY: ("Read only", "See what you can see, change nothing."),
    TokenPreset.CI: (
        "CI",
        "Run jobs, upload data, register and promote models. No members, secrets or tokens.",
    ),
    TokenPreset.EVERYTHING: (
        "Everything",
        "The command line, and administration of this installation.",
    ),
}
CUSTOM = "custom"
TOKEN_DAYS = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (180, "180 days"), (365, "1 year"))


def _scope_label(scope: Scope) -> SafeString:
    return format_html("{} <code>{}</code>", SCOPE_MEANINGS.get(scope, ""), scope.value)


def _preset_label(name: str, meaning: str) -> SafeString:
    return format_html(
        '<span class="fw-medium">{}</span> <span class="text-secondary">{}</span>', name, meaning
    )


def describe_scopes(scopes: Iterable[str]) -> str:
    """Return the name of the preset with exactly these scopes, or the scopes."""
    names = list(scopes)
    preset = preset_of_scopes(names)
    return PRESET_MEANINGS[preset][0] if preset else ", ".join(names)


class Profile(forms.Form):
    """One's own name."""

    name = forms.CharField(
        max_length=100,
        help_text="Shown to other members.",
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )


class NewTokenForm(forms.Form):
    """An API token to make."""

    name = forms.CharField(
        max_length=100,
        help_text="Purpose, for example “laptop” or “nightly job”.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    preset = forms.ChoiceField(required=False)
    scopes = forms.MultipleChoiceField(required=False)
    project = forms.ChoiceField(required=False)
    expires_in_days = forms.TypedChoiceField(
        label="Expires after", choices=TOKEN_DAYS, coerce=int, initial=90
    )

    def __init__(self, *args: Any, by: User, projects: ProjectQuerySet, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_administrator = by.is_administrator
        # For others Everything is the same as Command line.
        presets = [
            (preset.value, _preset_label(*words))
            for preset, words in PRESET_MEANINGS.items()
            if by.is_administrator or preset is not TokenPreset.EVERYTHING
        ]
        presets.append((CUSTOM, _preset_label("Custom", "Select each scope yourself.")))
        self.fields["preset"] = forms.ChoiceField(
            label="What may it do?",
            required=False,
            widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
            choices=presets,
            initial=TokenPreset.COMMAND_LINE.value,
        )
        offered = [scope for scope in Scope if scope != Scope.ADMIN or by.is_administrator]
        self.fields["scopes"] = forms.MultipleChoiceField(
            label="Scopes",
            required=False,
            widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
            choices=[(scope.value, _scope_label(scope)) for scope in offered],
        )
        self.projects = {p.slug: p for p in projects.live().order_by("name")}
        choices = [("", "All your projects, including future ones")]
        choices += [(slug, project.name) for slug, project in self.projects.items()]
        self.fields["project"] = forms.ChoiceField(
            required=False,
            choices=choices,
            help_text="A token limited to one project has no access outside it.",
        )

    def clean(self) -> dict[str, Any]:
        """Return the data with the scopes of the preset, or those that were selected."""
        cleaned = super().clean() or self.cleaned_data
        preset = cleaned.pop("preset", "")
        if preset and preset != CUSTOM:
            cleaned["scopes"] = scopes_of_preset(
                TokenPreset(preset), administrator=self.is_administrator
            )
        elif "scopes" in cleaned:
            cleaned["scopes"] = [Scope(scope) for scope in cleaned["scopes"]]
            if not cleaned["scopes"]:
                self.add_error("scopes", "Select at least one scope, or choose a preset above.")
        return cleaned

    def clean_project(self) -> Project | None:
        """Return the project itself."""
        return self.projects.get(self.cleaned_data["project"])


def token_form_initial(query: dict[str, str]) -> dict[str, Any]:
    """Read what a link such as `?name=cli-laptop&scopes=projects:read,tokens:read` fills in."""
    known = {scope.value for scope in Scope}
    scopes = [scope for scope in query.get("scopes", "").split(",") if scope in known]
    preset = query.get("preset", "")
    if preset not in set(TokenPreset):
        preset = (preset_of_scopes(scopes) or CUSTOM) if scopes else TokenPreset.COMMAND_LINE
    return {
        "name": query.get("name", "")[:100],
        "preset": str(preset),
        "scopes": scopes,
        "project": query.get("project", ""),
        "expires_in_days": 90,
    }


class WriteSecret(forms.Form):
    """A secret: written or replaced, never read back."""

    name = forms.CharField(
        max_length=64,
        help_text=(
            "Capital letters, digits and underscores. Code reads it from the environment "
            "variable with this name."
        ),
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "HF_TOKEN"}
        ),
    )
    value = forms.CharField(
        max_length=32_768,
        strip=False,
        help_text="Encrypted immediately. Nobody can read it back, not even an owner.",
        widget=forms.Textarea(attrs={"rows": 3, "autocomplete": "off", "spellcheck": "false"}),
    )

    def clean_value(self) -> str:
        """Return the value with the line ends it had before the browser changed them."""
        return str(self.cleaned_data["value"]).replace("\r\n", "\n")


class HandOverForm(forms.Form):
    """New owner of everything whose last owner is a suspended person."""

    hand_over_to = forms.EmailField(
        label="New owner",
        required=False,
        max_length=254,
        help_text=(
            "E-mail address of the person who takes over every team and project that would have "
            "no owner."
        ),
        widget=forms.EmailInput(attrs={"autocomplete": "off"}),
    )

    def clean_hand_over_to(self) -> str | None:
        """Return the person's id."""
        email = self.cleaned_data["hand_over_to"].strip().lower()
        if not email:
            return None
        heir = User.objects.matching("").filter(email=email, is_active=True).first()
        if heir is None:
            raise forms.ValidationError(
                "There is no active person with this address. Check the People page."
            )
        return heir.pk
