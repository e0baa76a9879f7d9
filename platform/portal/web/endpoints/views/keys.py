"""Keys of an endpoint: made, shown once, revoked."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from portal.accounts.principal import require_principal
from portal.core.errors import NotFound
from portal.core.policy import guarded_by
from portal.endpoints.gates import gated_endpoint
from portal.endpoints.models import EndpointKey
from portal.endpoints.services.keys import create_key, revoke_key
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.endpoints.forms import NewKeyForm
from portal.web.endpoints.presenters import url_of
from portal.web.endpoints.views.pages import CHANGE, WHERE


@guarded_by(CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_endpoint_key_new(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Create a key. Only this response shows it."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    form = NewKeyForm(sent(request))
    done = submit_form(
        request, form, lambda _: create_key(endpoint=endpoint_row, by=by, spec=form.payload)
    )
    context = {"endpoint": endpoint_row, "key_form": form, "url": url_of(endpoint_row)}
    if done:
        context |= {"made": done.result}
        return render(request, "web/endpoints/key_created.html", context | WHERE)
    status = status_of(form)
    return render(request, "web/endpoints/key_new.html", context | WHERE, status=status)


@guarded_by(CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_endpoint_key_revoke(
    request: HttpRequest, project: str, endpoint: str, key: str
) -> HttpResponse:
    """Ask, then revoke a key."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    endpoint_key = EndpointKey.objects.shown().filter(endpoint=endpoint_row, pk=key).first()
    if endpoint_key is None:
        raise NotFound
    back = reverse("project_endpoint_keys", args=[endpoint_row.project.slug, endpoint_row.name])
    if request.method == "POST":
        if one_click(request, lambda: revoke_key(endpoint=endpoint_row, by=by, key_id=key)):
            messages.success(request, f"Key {endpoint_key.name} revoked.")
        return redirect(back)
    question = Confirmation(
        title=f"Revoke the key {endpoint_key.name}?",
        effects=(
            (f"{endpoint_row.name} refuses requests with {endpoint_key.prefix}… within seconds."),
            "You cannot undo this. You can create a new key at any time.",
        ),
        button="Revoke the key",
        back=back,
        area="projects",
        section="endpoints",
    )
    return show_confirmation(request, question)
