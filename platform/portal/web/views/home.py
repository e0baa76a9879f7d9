"""Home."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal.accounts.gates import SignedIn
from portal.core.policy import guarded_by


@guarded_by(SignedIn())
def home(request: HttpRequest) -> HttpResponse:
    """Show what the person has and can start."""
    return render(request, "web/home.html")
