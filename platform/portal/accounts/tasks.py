"""Celery tasks of the app."""

from datetime import timedelta

from portal.accounts import housekeeping, outbox
from portal.core.enqueue import background_task

# Task → how often it runs even if it is not enqueued.
PERIODIC = {
    "accounts.deliver_due_mail": timedelta(seconds=5),
    "accounts.delete_old_mail": timedelta(hours=6),
    "accounts.delete_expired": timedelta(hours=1),
}


@background_task("accounts.deliver_due_mail")
def deliver_due_mail() -> None:
    """Send the mails that are due."""
    outbox.deliver_due()


@background_task("accounts.delete_old_mail")
def forget_old_mail() -> None:
    """Delete mails sent long ago."""
    outbox.delete_old_mail()


@background_task("accounts.delete_expired")
def forget_expired() -> None:
    """Delete expired sessions, sign-on tokens and invitations."""
    housekeeping.forget_expired_sessions()
    housekeeping.forget_expired_sign_on()
    housekeeping.forget_unused_invitations()
