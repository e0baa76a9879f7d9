"""Forms about projects and teams, their members and invitations."""

from typing import Any

from django import forms

from portal.accounts.models import Team, User
from portal.accounts.models.tenancy import team_roles_of
from slipway.schemas.accounts import MOST_NOTE_CHARACTERS, MOST_README_CHARACTERS, Role

ROLE_MEANINGS = {
    Role.VIEWER: "can see everything",
    Role.CONTRIBUTOR: "can run and change things",
    Role.MAINTAINER: "can also invite people and set secrets",
    Role.OWNER: "can also archive it and add owners",
}
SLUG_HINT = "Used in URLs and commands; it cannot change. Empty: generated from the name."
NETWORK_RULES = (
    ("open", "Open: everything the node can reach"),
    ("platform", "Platform: only Slipway's portal and gateways"),
)
DAYS = ((1, "1 day"), (7, "7 days"), (14, "14 days"), (30, "30 days"))


def role_choices(up_to: Role) -> list[tuple[str, str]]:
    """The roles somebody of role `up_to` may give, each with what it means."""
    return [
        (role.value, f"{role.value.title()}: {ROLE_MEANINGS[role]}")
        for role in Role
        if up_to.at_least(role)
    ]


class NewProject(forms.Form):
    """A project to make."""

    name = forms.CharField(
        max_length=100,
        help_text="For example “Churn model”.",
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )
    slug = forms.CharField(
        label="Address",
        required=False,
        max_length=48,
        help_text=SLUG_HINT,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    description = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(attrs={"rows": 3})
    )
    team = forms.ChoiceField(
        required=False,
        help_text="A team's members get their team role in the project.",
    )

    def __init__(self, *args: Any, by: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        roles = team_roles_of(by)
        allowed = [pk for pk, role in roles.items() if role.at_least(Role.MAINTAINER)]
        self.teams = {team.slug: team for team in Team.objects.filter(pk__in=allowed)}
        choices = [("", "No team: only people you invite")]
        choices += [(team.slug, team.name) for team in self.teams.values()]
        self.fields["team"] = forms.ChoiceField(
            required=False, choices=choices, help_text=self.fields["team"].help_text
        )

    def clean_team(self) -> Team | None:
        """Return the team itself."""
        return self.teams.get(self.cleaned_data["team"])


class NewTeam(forms.Form):
    """A team to make."""

    name = forms.CharField(
        max_length=100, widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"})
    )
    slug = forms.CharField(
        label="Address",
        required=False,
        max_length=48,
        help_text=SLUG_HINT,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )


class EditProject(forms.Form):
    """Name and description of a project."""

    name = forms.CharField(max_length=100)
    description = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(attrs={"rows": 4})
    )


class ChooseNetwork(forms.Form):
    """Network access of the tasks of a project."""

    network = forms.ChoiceField(
        label="Network access of tasks",
        choices=NETWORK_RULES,
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
        help_text=(
            "Applies to work that starts from now on. Jobs on several nodes need the network."
        ),
    )


class ReadmeForm(forms.Form):
    """The README of a project, and the version it was edited from."""

    text = forms.CharField(
        label="README",
        required=False,
        max_length=MOST_README_CHARACTERS,
        help_text="Markdown: headings, lists, tables, links and code. Images are not shown.",
        widget=forms.Textarea(attrs={"rows": 22, "spellcheck": "true"}),
    )
    version = forms.IntegerField(min_value=0, max_value=2**31 - 2, widget=forms.HiddenInput)


class NoteForm(forms.Form):
    """Notes about an object, and the version they were edited from."""

    text = forms.CharField(
        label="Notes",
        required=False,
        max_length=MOST_NOTE_CHARACTERS,
        help_text="Markdown: headings, lists, tables, links and code. Images are not shown.",
        widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "true"}),
    )
    version = forms.IntegerField(min_value=0, max_value=2**31 - 2, widget=forms.HiddenInput)


class EditTeam(forms.Form):
    """The name of a team."""

    name = forms.CharField(max_length=100)


class ConfirmSlug(forms.Form):
    """The address of what is about to go, typed by hand."""

    confirm = forms.CharField(
        max_length=48, widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    )

    def __init__(self, *args: Any, slug: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.slug = slug
        self.fields["confirm"].label = f"Type {slug} to confirm"

    def clean_confirm(self) -> str:
        """Reject anything but the address itself."""
        if self.cleaned_data["confirm"].strip() != self.slug:
            raise forms.ValidationError(f"This is not {self.slug}. Type it as shown above.")
        return self.slug


class Invite(forms.Form):
    """Whom to invite, and as what."""

    email = forms.EmailField(
        label="E-mail address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "off", "placeholder": "ada@example.org"}),
    )
    role = forms.ChoiceField()
    expires_in_days = forms.TypedChoiceField(
        label="Link valid for", choices=DAYS, coerce=int, initial=7
    )

    def __init__(self, *args: Any, by_role: Role, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"] = forms.ChoiceField(
            choices=role_choices(by_role), initial=Role.CONTRIBUTOR.value
        )

    def clean_role(self) -> Role:
        """Return the role itself."""
        return Role(self.cleaned_data["role"])


class MemberRoleForm(forms.Form):
    """The new role of a member."""

    role = forms.ChoiceField(choices=[(role.value, role.value) for role in Role])

    def clean_role(self) -> Role:
        """Return the role itself."""
        return Role(self.cleaned_data["role"])
