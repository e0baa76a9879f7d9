"""People of this installation, for administrators."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import Administrator
from portal.accounts.models import ApiToken, Membership, User
from portal.accounts.principal import require_principal
from portal.accounts.services.people import change_account
from portal.core.errors import InvalidInput, NotFound
from portal.core.policy import guarded_by
from portal.web.account.forms.settings import HandOverForm
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click, sent, submit_form
from portal.web.base.list_query import SETTINGS_LAYOUT, Select, listing, search_parameter

SORTS = {"name": "name", "email": "email"}
# Changes made by the buttons of the page: `is_active`, `is_administrator`.
CHANGES: dict[str, tuple[bool | None, bool | None]] = {
    "reinstate": (True, None),
    "promote": (None, True),
    "demote": (None, False),
}


@guarded_by(Administrator())
@require_safe
def people(request: HttpRequest) -> HttpResponse:
    """List the people."""
    users = User.objects.matching(search_parameter(request, "q"))
    state = request.GET.get("state")
    if state == "suspended":
        users = users.filter(is_active=False)
    elif state == "administrators":
        users = users.filter(is_administrator=True)
    options = [("administrators", "Administrators"), ("suspended", "Suspended")]
    states = Select("state", "State", options, default="Everybody")
    shown = listing(request, users, sorts=SORTS, selects=(states,))
    context = {
        "listing": shown,
        "region": "people",
        "rows": shown.page.items,
        "layout": SETTINGS_LAYOUT,
        "area": "account",
        "section": "people",
    }
    return render(request, "web/settings/people.html", context)


@guarded_by(Administrator())
@require_safe
def person(request: HttpRequest, person: str) -> HttpResponse:
    """Show one person and what an administrator may do about them."""
    user = _get_user(person)
    context = {
        "person": user,
        "membership_count": Membership.objects.filter(user=user).count(),
        "token_count": ApiToken.objects.usable().filter(user=user).count(),
        "is_self": user.pk == require_principal(request).user_id,
        "area": "account",
        "section": "people",
    }
    return render(request, "web/settings/person.html", context)


@guarded_by(Administrator())
@require_http_methods(["GET", "HEAD", "POST"])
def person_suspend(request: HttpRequest, person: str) -> HttpResponse:
    """Confirm, then suspend. Ask for a new owner if the person is the last owner of something."""
    user = _get_user(person)
    form = HandOverForm(sent(request))
    if submit_form(
        request, form, lambda data: change_account(user_id=person, is_active=False, **data)
    ):
        messages.success(request, f"{user} suspended.")
        return redirect("person", person)
    question = Confirmation(
        title=f"Suspend {user}?",
        effects=(
            (
                "All their sessions and API tokens stop working immediately; open pages are "
                "disconnected."
            ),
            (
                "Everything they created is retained. Their memberships return when they are "
                "reinstated."
            ),
        ),
        button=f"Suspend {user}",
        back=reverse("person", args=[person]),
        area="account",
        section="people",
    )
    return show_confirmation(request, question, form)


@guarded_by(Administrator())
@require_POST
def person_change(request: HttpRequest, person: str) -> HttpResponse:
    """Reinstate a person, or grant or revoke administrator rights."""
    user = _get_user(person)
    changes = CHANGES.get(request.POST.get("do", ""))
    if changes is None:
        raise InvalidInput("Unknown action.", next_step="Use the buttons on the page.")
    done = one_click(
        request,
        lambda: change_account(user_id=person, is_active=changes[0], is_administrator=changes[1]),
    )
    if done:
        messages.success(request, f"Account of {user} updated.")
    return redirect("person", person)


def _get_user(person: str) -> User:
    user = User.objects.people().filter(pk=person).first()
    if user is None:
        raise NotFound
    return user
