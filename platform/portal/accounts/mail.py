"""Outgoing mail: a row in the transaction of what it tells, delivered afterwards."""

from portal.accounts.models import OutboxMail


def queue_mail(*, to: str, subject: str, body: str) -> OutboxMail:
    """Write a mail that will leave once the surrounding transaction has committed."""
    return OutboxMail.objects.create(to=to, subject=subject[:200], body=body)
