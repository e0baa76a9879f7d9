"""Mails leave once, later when the server is down, and never block each other."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.test import Client

from portal.accounts import outbox
from portal.accounts.mail import queue_mail
from portal.accounts.models import OutboxMail
from portal.core import clock

pytestmark = [pytest.mark.postgres, pytest.mark.django_db]


class DownBackend(EmailBackend):
    """A mail server that cannot be reached."""

    def send_messages(self, messages: Any) -> int:
        raise ConnectionRefusedError("nobody there")


def _queue(count: int = 1) -> list[OutboxMail]:
    return [
        queue_mail(to="ada@example.org", subject=f"Mail {n}", body=f"link {n}")
        for n in range(count)
    ]


def test_a_mail_leaves_once() -> None:
    (row,) = _queue()
    assert outbox.deliver_due() == 1
    assert outbox.deliver_due() == 0
    assert [sent.subject for sent in mail.outbox] == ["Mail 0"]
    row.refresh_from_db()
    assert row.sent_at is not None


def test_a_link_does_not_stay_in_the_database_once_it_has_left() -> None:
    (row,) = _queue()
    outbox.deliver_due()
    row.refresh_from_db()
    assert row.body == ""
    assert "link 0" in mail.outbox[0].body


def test_a_mail_that_somebody_else_claimed_is_left_to_them() -> None:
    (row,) = _queue()
    seen = OutboxMail.objects.get(pk=row.pk)
    assert outbox._claim(seen)
    assert not outbox._claim(row)
    assert outbox.deliver_due() == 0


def test_a_claim_that_was_never_finished_runs_out() -> None:
    (row,) = _queue()
    assert outbox._claim(row)
    with clock.frozen(clock.now() + outbox.CLAIM + timedelta(seconds=1)):
        assert outbox.deliver_due() == 1


def test_while_the_server_is_down_attempts_grow_rarer(settings: Any) -> None:
    settings.EMAIL_BACKEND = f"{__name__}.DownBackend"
    (row,) = _queue()
    now = datetime(2027, 1, 1, tzinfo=UTC)
    OutboxMail.objects.update(next_attempt_at=now)
    pauses = []
    for _ in range(7):
        with clock.frozen(now):
            assert outbox.deliver_due() == 0
        row.refresh_from_db()
        pauses.append((row.next_attempt_at - now).total_seconds())
        now = row.next_attempt_at
    assert pauses == [10, 30, 60, 300, 900, 3600, 3600]
    assert row.last_error == "nobody there"


def test_a_mail_that_cannot_be_sent_does_not_hold_up_the_others() -> None:
    OutboxMail.objects.create(to="ada@example.org", subject="two\nlines", body="")
    _queue(2)
    assert outbox.deliver_due() == 2
    assert "header" in OutboxMail.objects.get(subject="two\nlines").last_error.lower()


def test_mails_that_cannot_be_sent_are_a_problem_that_people_see_without_addresses() -> None:
    refused, given_up, _new = _queue(3)
    reason = "{'ada@example.org': (550, b'no such user')}"
    OutboxMail.objects.filter(pk=refused.pk).update(attempts=4, last_error=reason)
    OutboxMail.objects.filter(pk=given_up.pk).update(attempts=outbox.MAX_ATTEMPTS)
    problem = Client().get("/readyz").json()["problems"]["mail"]
    assert problem.startswith("2 mails could not be sent after several attempts (1 given up).")
    assert "ada" not in problem


def test_old_mails_are_forgotten_and_waiting_ones_are_not() -> None:
    sent, given_up, waiting = _queue(3)
    OutboxMail.objects.filter(pk=sent.pk).update(sent_at=clock.now())
    OutboxMail.objects.filter(pk=given_up.pk).update(attempts=outbox.MAX_ATTEMPTS)
    with clock.frozen(clock.now() + timedelta(days=8)):
        assert outbox.delete_old_mail() == 2
    assert list(OutboxMail.objects.values_list("pk", flat=True)) == [waiting.pk]
