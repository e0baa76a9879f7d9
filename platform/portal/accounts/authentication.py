"""django-allauth adapter: sign-up by invitation only, rate limits that lock nobody out."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme

from portal.accounts.client_address import client_address, client_network
from portal.accounts.mail import queue_mail
from portal.accounts.models import Invitation, User
from portal.accounts.services.invitations import find_open
from portal.core.errors import NotFound

_NOWHERE = "0.0.0.0"  # noqa: S104  (not bound: the address of a Unix socket's client)
SESSION_INVITATION = "slipway_invitation"


def invitation_in(request: HttpRequest) -> Invitation | None:
    """Return the open invitation whose link this browser followed, if any."""
    secret = request.session.get(SESSION_INVITATION)
    if not secret:
        return None
    try:
        return find_open(str(secret))
    except NotFound:
        del request.session[SESSION_INVITATION]
        return None


class AccountAdapter(DefaultAccountAdapter):
    """Adapter with Slipway's overrides of allauth's behaviour."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return True if the request carries an open invitation."""
        return invitation_in(request) is not None

    def is_safe_url(self, url: str | None) -> bool:
        """Return True if `url` is a safe redirect after sign-in: a path of this portal only.

        allauth would allow every host the portal answers to, including other ports of this machine.
        """
        return url is not None and url_has_allowed_host_and_scheme(url, allowed_hosts=None)

    def clean_email(self, email: str) -> str:
        """Compare and store addresses in lower case."""
        return str(super().clean_email(email)).strip().lower()

    def save_user(self, request: HttpRequest, user: User, form: Any, commit: bool = True) -> User:
        """Create the account for the invited address, whichever address the form holds."""
        invitation = invitation_in(request)
        saved: User = super().save_user(request, user, form, commit=False)
        if invitation is not None:
            saved.email = invitation.email
        saved.name = str(form.cleaned_data.get("name", ""))[:100]
        if commit:
            saved.save()
        return saved

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Write the mail to the outbox, so that a failing mail server only delays it."""
        message = self.render_mail(template_prefix, email, context)
        queue_mail(to=email, subject=str(message.subject), body=str(message.body))

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the client address for rate limits and for the list of sessions."""
        return client_address(request) or _NOWHERE

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Count failures by address *and* e-mail: a stranger cannot lock a person out.

        allauth adds the Host header, which the client chooses.
        """
        login = str(credentials.get("email", credentials.get("username", ""))).lower()
        return f"{client_network(request)}:{login}"
