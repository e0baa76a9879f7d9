"""The forms of signing in and of one's own account, on top of allauth's."""

from typing import Any

from allauth.account.forms import (
    ChangePasswordForm,
    LoginForm,
    ResetPasswordForm,
    ResetPasswordKeyForm,
    SignupForm,
)
from django import forms
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.http import HttpRequest

from portal.accounts.authentication import invitation_in
from portal.accounts.services.people import clean_person_name, end_access
from portal.core.errors import SlipwayError

PASSWORD_HINT = "At least 10 characters; not a common password, not your name."  # noqa: S105


def _remove_placeholders(form: forms.Form) -> None:
    """Remove the placeholders, which repeat the labels."""
    for field in form.fields.values():
        field.widget.attrs.pop("placeholder", None)


class PersonName(forms.CharField):
    """The name other members read."""

    def __init__(self) -> None:
        super().__init__(
            label="Your name",
            max_length=100,
            widget=forms.TextInput(attrs={"autocomplete": "name"}),
        )

    def clean(self, value: Any) -> str:
        """Return the normalized name, or raise a ValidationError if it is not allowed."""
        try:
            return clean_person_name(super().clean(value))
        except SlipwayError as error:
            raise forms.ValidationError(f"{error.message} {error.next_step or ''}") from error


class SignIn(LoginForm):
    """E-mail and password."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _remove_placeholders(self)
        self.fields["login"].widget.attrs |= {"autofocus": True, "autocomplete": "username"}
        self.fields["password"].help_text = ""


class Join(SignupForm):
    """Name and password of an invited person. The e-mail address is that of the invitation."""

    field_order = ("email", "name", "password1")
    name = PersonName()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _remove_placeholders(self)
        self.fields["email"].disabled = True
        self.fields["email"].help_text = "The address that was invited."
        self.fields["name"].widget.attrs["autofocus"] = True
        self.fields["password1"].help_text = PASSWORD_HINT

    def signup(self, request: HttpRequest, user: AbstractBaseUser) -> None:
        """Nothing more to do: the adapter has made the account for the invited address."""


class EndTokens(forms.BooleanField):
    """Checkbox to revoke API tokens together with the sessions."""

    def __init__(self, *, initial: bool) -> None:
        super().__init__(
            label="Revoke all API tokens too",
            required=False,
            initial=initial,
            help_text=(
                "Scripts and machines that use them need new ones. Choose this if somebody else "
                "may know your password."
            ),
        )


class ChangePassword(ChangePasswordForm):
    """The old and the new password, once each: it can be shown while it is typed."""

    end_tokens = EndTokens(initial=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _remove_placeholders(self)
        del self.fields["password2"]
        self.fields["oldpassword"].label = "Current password"
        self.fields["oldpassword"].help_text = ""
        self.fields["password1"].label = "New password"
        self.fields["password1"].help_text = PASSWORD_HINT

    def save(self) -> None:
        """Set the password, and end every session and, if requested, every API token."""
        with transaction.atomic():
            super().save()
            end_access(user=self.user, tokens=self.cleaned_data["end_tokens"])


class ResetRequestForm(ResetPasswordForm):
    """The address to send the link to."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _remove_placeholders(self)
        self.fields["email"].widget.attrs["autofocus"] = True


class NewPasswordForm(ResetPasswordKeyForm):
    """The new password, once."""

    end_tokens = EndTokens(initial=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _remove_placeholders(self)
        del self.fields["password2"]
        self.fields["password1"].label = "New password"
        self.fields["password1"].help_text = PASSWORD_HINT
        self.fields["password1"].widget.attrs["autofocus"] = True

    def save(self) -> None:
        """Set the password, and end every session and, if requested, every API token."""
        with transaction.atomic():
            super().save()
            end_access(user=self.user, tokens=self.cleaned_data["end_tokens"])


def invited_address(request: HttpRequest) -> str:
    """Return the e-mail address of the browser's invitation, or an empty string."""
    invitation = invitation_in(request)
    return invitation.email if invitation else ""
