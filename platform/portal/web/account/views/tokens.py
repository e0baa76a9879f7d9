"""One's own API tokens."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from portal.accounts.gates import SignedIn
from portal.accounts.models import ApiToken
from portal.accounts.principal import require_principal
from portal.accounts.services.tokens import create_token, revoke_token
from portal.core import clock
from portal.core.errors import NotFound
from portal.core.policy import guarded_by
from portal.web.account.forms.settings import NewTokenForm, describe_scopes, token_form_initial
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.base.list_query import SETTINGS_LAYOUT, Select, listing, search_parameter
from slipway.schemas.accounts import Scope


@guarded_by(SignedIn(Scope.TOKENS_READ))
@require_safe
def tokens(request: HttpRequest) -> HttpResponse:
    """List one's tokens: those that work, or all."""
    user, text = require_principal(request).user, search_parameter(request, "q")
    api_tokens = ApiToken.objects.filter(user=user).select_related("project")
    if request.GET.get("state") != "all":
        api_tokens = api_tokens.usable()
    api_tokens = api_tokens.filter(name__icontains=text) if text else api_tokens
    options = [("all", "All, including revoked and expired")]
    states = Select("state", "State", options, default="Active", narrows=True)
    shown = listing(request, api_tokens, sorts={"name": "name"}, selects=(states,))
    context = {
        "listing": shown,
        "region": "tokens",
        "rows": [(row, describe_scopes(row.scopes)) for row in shown.page.items],
        "layout": SETTINGS_LAYOUT,
        "now": clock.now(),
        "area": "account",
        "section": "tokens",
    }
    return render(request, "web/settings/tokens.html", context)


@guarded_by(SignedIn(Scope.TOKENS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def token_new(request: HttpRequest) -> HttpResponse:
    """Create a token. Only this response shows it."""
    principal = require_principal(request)
    form = NewTokenForm(
        sent(request),
        by=principal.user,
        projects=principal.projects(),
        initial=token_form_initial(request.GET.dict()),
    )
    done = submit_form(request, form, lambda data: create_token(by=principal, **data))
    context = {"form": form, "area": "account", "section": "tokens"}
    if done:
        context |= {"made": done.result, "may": describe_scopes(done.result.token.scopes)}
        return render(request, "web/settings/token_created.html", context)
    return render(request, "web/settings/token_new.html", context, status=status_of(form))


@guarded_by(SignedIn(Scope.TOKENS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def token_revoke(request: HttpRequest, token: str) -> HttpResponse:
    """Ask, then revoke a token."""
    user = require_principal(request).user
    api_token = ApiToken.objects.filter(user=user, pk=token).first()
    if api_token is None:
        raise NotFound
    if request.method == "POST":
        revoke_token(by=user, token_id=token)
        messages.success(request, f"The token “{api_token.name}” no longer works.")
        return redirect("tokens")
    question = Confirmation(
        title=f"Revoke the token “{api_token.name}”?",
        effects=(
            f"Programs that use {api_token.prefix}… are refused from their next request on.",
            "You cannot restore a revoked token; create a new one instead.",
        ),
        button="Revoke the token",
        back="/settings/tokens",
        area="account",
        section="tokens",
    )
    return show_confirmation(request, question)
