"""One's own account in the system of a pool, and the command that proves it."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from portal.accounts.gates import SignedIn
from portal.accounts.principal import require_principal
from portal.compute.models import Pool, PoolAccount
from portal.compute.services.pool_accounts import (
    PROOF_WITHIN,
    given_account,
    has_accounts,
    proof_command,
    proves_accounts,
    request_link,
)
from portal.compute.services.pool_helpers import (
    helper_command,
    is_helper_running,
    uses_helpers,
)
from portal.core.errors import NotFound
from portal.core.policy import guarded_by
from portal.web.base.form_submission import one_click

_WHERE = {"area": "account", "section": "profile"}


@guarded_by(SignedIn())
@require_http_methods(["GET", "HEAD", "POST"])
def pool_account(request: HttpRequest, pool: str) -> HttpResponse:
    """Show one's own account in a pool. Give the command that proves it."""
    principal = require_principal(request)
    pool_row = Pool.objects.visible_to(principal).filter(name=pool).first()
    if pool_row is None:
        raise NotFound
    if request.method == "POST":
        is_sent = one_click(request, lambda: request_link(pool=pool_row, user=principal.user))
        if is_sent and not uses_helpers(pool_row):
            messages.success(request, "Run the command below within the hour.")
        return redirect("pool_account", pool)
    account = PoolAccount.objects.filter(pool=pool_row, user=principal.user).first()
    command = proof_command(pool_row, account)
    context = {
        "pool": pool_row,
        "account": account,
        "has_accounts": proves_accounts(pool_row),
        "is_given": has_accounts(pool_row),
        "given": given_account(pool_row, principal.user),
        "command": command,
        "helper_command": helper_command(pool_row) if uses_helpers(pool_row) else "",
        "is_helper_running": is_helper_running(pool_row, principal.user_id),
        "expires_at": account.asked_at + PROOF_WITHIN
        if command and account is not None and account.asked_at is not None
        else None,
    }
    return render(request, "web/pools/account.html", context | _WHERE)
