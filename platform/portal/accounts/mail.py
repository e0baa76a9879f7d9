"""Outgoing mail: a row written in the transaction of the event, delivered afterwards."""

from portal.accounts.models import OutboxMail
from portal.accounts.models.service_accounts import is_service_address
from portal.accounts.tasks import deliver_due_mail
from portal.core import clock
from portal.core.enqueue import enqueue_on_commit


def queue_mail(*, to: str, subject: str, body: str) -> OutboxMail:
    """Queue a mail that is sent once the surrounding transaction has committed.

    A mail to a service account is stored as sent, because nobody reads it.
    """
    one_line = " ".join(subject.split())  # a line break would start another header
    if is_service_address(to):
        sent_at = clock.now()
        return OutboxMail.objects.create(to=to, subject=one_line[:200], body="", sent_at=sent_at)
    mail = OutboxMail.objects.create(to=to, subject=one_line[:200], body=body)
    enqueue_on_commit(deliver_due_mail)
    return mail
