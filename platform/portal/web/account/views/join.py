"""Joining by invitation, on top of allauth's sign-up."""

from typing import Any

from allauth.account.views import SignupView
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from portal.accounts.authentication import SESSION_INVITATION, invitation_in
from portal.accounts.services.invitations import accept
from portal.core.errors import SlipwayError
from portal.web.account.forms.account import invited_address
from portal.web.base.urls_for import address_of


class JoinView(SignupView):
    """Create the account of an invitation, accept the invitation, redirect to its target."""

    def get_initial(self) -> dict[str, Any]:
        """The address is the invited one, whatever the link says."""
        return {"email": invited_address(self.request)}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the page: the target of the invitation."""
        context: dict[str, Any] = super().get_context_data(**kwargs)
        return context | {"invitation": invitation_in(self.request)}

    def form_valid(self, form: Any) -> HttpResponse:
        """Create the account and sign in, then accept the invitation and redirect to its target."""
        response: HttpResponse = super().form_valid(form)
        secret = self.request.session.pop(SESSION_INVITATION, None)
        if self.user is None or secret is None:
            return response
        try:
            return redirect(address_of(accept(secret=secret, by=self.user).group))
        except SlipwayError as error:  # revoked while the form was open
            messages.error(self.request, error.message)
            return response


join = JoinView.as_view()
