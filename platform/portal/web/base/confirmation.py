"""Questions before something is destroyed: what goes, what depends on it, how to go back."""

from dataclasses import dataclass

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal.web.base.form_submission import status_of


@dataclass(frozen=True)
class Confirmation:
    """One question. `effects` say, line by line, what happens to what depends on it."""

    title: str
    effects: tuple[str, ...]
    button: str
    back: str
    area: str
    section: str = ""


def show_confirmation(
    request: HttpRequest, question: Confirmation, form: forms.Form | None = None
) -> HttpResponse:
    """Show a confirmation page. Its form posts to the URL of the page itself.

    The page opens as a dialog over the page that links to it when scripts run.
    """
    context = {
        "question": question,
        "form": form,
        "area": question.area,
        "section": question.section,
    }
    status = status_of(form) if form is not None else 200
    return render(request, "web/confirmation.html", context, status=status)
