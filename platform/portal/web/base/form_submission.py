"""From a form to one service, and from the service's refusal back to the form."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django import forms
from django.contrib import messages
from django.http import HttpRequest, QueryDict

from portal.core.errors import NotFound, SlipwayError, Unauthenticated

Result = TypeVar("Result")


@dataclass(frozen=True)
class FormResult(Generic[Result]):
    """Result of a form that was carried out. `result` is the return value of the service."""

    result: Result


def sent(request: HttpRequest) -> QueryDict | None:
    """Return the submitted form data, or None unless the request is a POST."""
    return request.POST if request.method == "POST" else None


def submit_form(
    request: HttpRequest, form: forms.Form, service: Callable[[dict[str, Any]], Result]
) -> FormResult[Result] | None:
    """Call `service` with the clean data of a sent form.

    Returns None when nothing was sent, or when the form or the service refuses: then the refusal
    is in the form, next to its field. What the person may not see raises, as everywhere.
    """
    if request.method != "POST" or not form.is_valid():
        return None
    try:
        return FormResult(service(form.cleaned_data))
    except (NotFound, Unauthenticated):
        raise
    except SlipwayError as error:
        refuse(form, error)
        return None


def one_click(request: HttpRequest, service: Callable[[], Result]) -> FormResult[Result] | None:
    """Call `service` for a button. Errors become messages, as there is no form to show them."""
    try:
        return FormResult(service())
    except (NotFound, Unauthenticated):
        raise
    except SlipwayError as error:
        messages.error(request, error_text(error))
        return None


def error_text(error: SlipwayError) -> str:
    """Return the message of an error, followed by its next step."""
    return " ".join(filter(None, (error.message, error.next_step)))


def refuse(form: forms.Form, error: SlipwayError) -> None:
    """Show an error next to its field, or on top of a form that has no such field."""
    form.add_error(error.field if error.field in form.fields else None, error_text(error))


def status_of(form: forms.Form) -> int:
    """The HTTP status of a page that shows the form: 422 when it was sent and refused."""
    return 422 if form.is_bound and not form.is_valid() else 200
