"""Delivery of outgoing mails: at least once, and only once unless a worker dies while sending."""

import time
from datetime import timedelta

import structlog
from django.core.mail import EmailMessage
from django.db.models import F

from portal.accounts.models import OutboxMail
from portal.core import clock
from slipway.schemas.truncation import shorten

log = structlog.get_logger(__name__)

# Longer than a mail server may take (EMAIL_TIMEOUT is 10 s a step), so that no other process
# sends the same mail meanwhile. Short, because the mail of a killed worker waits this long.
CLAIM = timedelta(seconds=30)
MAX_ATTEMPTS = 40
_PAUSES = tuple(timedelta(seconds=s) for s in (10, 30, 60, 300, 900))
_LONGEST_PAUSE = timedelta(hours=1)
_KEEP = timedelta(days=7)
# Attempts before people are informed: a restart of the mail server is not worth a message.
_NOTICED_ATTEMPTS = 4
_BUDGET_S = 20.0


def deliver_due() -> int:
    """Send the due mails, for at most about 20 s. Return the number sent."""
    sent = 0
    deadline = time.monotonic() + _BUDGET_S
    for mail in OutboxMail.objects.due().filter(attempts__lt=MAX_ATTEMPTS)[:100]:
        if _claim(mail) and _send(mail):
            sent += 1
        if time.monotonic() > deadline:
            break
    return sent


def mail_problem() -> str:
    """Return a warning with the number of mails not sent yet, or an empty string.

    It leaves out the reasons, which may contain addresses and are in the log.
    """
    unsent = OutboxMail.objects.filter(sent_at__isnull=True, attempts__gte=_NOTICED_ATTEMPTS)
    count = unsent.count()
    if not count:
        return ""
    given_up = unsent.filter(attempts__gte=MAX_ATTEMPTS).count()
    noun = "mail could" if count == 1 else "mails could"
    return (
        f"{count:,} {noun} not be sent after several attempts ({given_up:,} given up). Slipway's "
        "log has the reasons (mail_not_sent)."
    )


def _claim(mail: OutboxMail) -> bool:
    """Claim the mail for this process. Return False when another process was faster."""
    claimed = OutboxMail.objects.filter(
        pk=mail.pk,
        sent_at__isnull=True,
        attempts=mail.attempts,
        next_attempt_at=mail.next_attempt_at,
    ).update(attempts=F("attempts") + 1, next_attempt_at=clock.now() + CLAIM)
    mail.attempts += 1
    return claimed == 1


def _send(mail: OutboxMail) -> bool:
    outbox_mails = OutboxMail.objects.filter(
        pk=mail.pk, attempts=mail.attempts, sent_at__isnull=True
    )
    try:
        EmailMessage(mail.subject, mail.body, to=[mail.to]).send()
    except (OSError, ValueError) as error:  # smtplib raises OSErrors, a bad header is a ValueError
        pause = _PAUSES[mail.attempts - 1] if mail.attempts <= len(_PAUSES) else _LONGEST_PAUSE
        outbox_mails.update(
            next_attempt_at=clock.now() + pause, last_error=shorten(str(error), 500)
        )
        log.warning("mail_not_sent", mail=mail.pk, attempt=mail.attempts, reason=str(error)[:200])
        return False
    # The body may contain a sign-in link, so it is deleted once the mail is sent.
    outbox_mails.update(sent_at=clock.now(), last_error="", body="")
    log.info("mail_sent", mail=mail.pk, attempt=mail.attempts)
    return True


def delete_old_mail() -> int:
    """Delete sent and abandoned mails that are a week old. Return the number deleted."""
    before = clock.now() - _KEEP
    gone, _ = (
        OutboxMail.objects.filter(created_at__lt=before)
        .exclude(sent_at__isnull=True, attempts__lt=MAX_ATTEMPTS)
        .delete()
    )
    return gone
