"""Doorbells of the room."""

from datetime import timedelta

from django.contrib.sessions.models import Session

from portal.accounts import outbox
from portal.core import clock
from portal.core.doorbell import doorbell

# Task → how often it runs whether or not anybody rings.
PERIODIC = {
    "accounts.deliver_due_mail": timedelta(seconds=5),
    "accounts.forget_old_mail": timedelta(hours=6),
    "accounts.forget_expired_sessions": timedelta(hours=1),
}


@doorbell("accounts.deliver_due_mail")
def deliver_due_mail() -> None:
    """Send the mails that are due."""
    outbox.deliver_due()


@doorbell("accounts.forget_old_mail")
def forget_old_mail() -> None:
    """Delete mails that left long ago."""
    outbox.forget_old()


@doorbell("accounts.forget_expired_sessions")
def forget_expired_sessions() -> None:
    """Delete sessions nobody can use any more."""
    Session.objects.filter(expire_date__lt=clock.now()).delete()
