"""What nobody can use any more is deleted, and nothing else."""

from datetime import timedelta

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from oauth2_provider.models import AccessToken

from portal.accounts.models import Invitation
from portal.accounts.tasks import forget_expired
from portal.api.models import IdempotencyRecord
from portal.api.tasks import forget_answers
from portal.core import clock
from slipway.schemas.accounts import Role
from tests.personas import Personas

pytestmark = [pytest.mark.postgres, pytest.mark.django_db]
_DAY = timedelta(days=1)


def _sign_in(people: Personas, key: str, *, ends_in: timedelta) -> None:
    Session.objects.create(session_key=key, session_data="", expire_date=clock.now() + ends_in)
    UserSession.objects.create(
        user=people.alice, session_key=key, ip="127.0.0.1", user_agent="test"
    )


def test_sessions_end_with_what_is_known_of_their_browser(people: Personas) -> None:
    _sign_in(people, "over", ends_in=-_DAY)
    _sign_in(people, "open", ends_in=_DAY)
    forget_expired()
    assert list(Session.objects.values_list("session_key", flat=True)) == ["open"]
    assert list(UserSession.objects.values_list("session_key", flat=True)) == ["open"]


def test_tokens_of_single_sign_on_go_when_they_have_expired(people: Personas) -> None:
    for token, ends_in in (("over", -_DAY), ("open", _DAY)):
        AccessToken.objects.create(
            user=people.alice, token=token, scope="openid", expires=clock.now() + ends_in
        )
    forget_expired()
    assert list(AccessToken.objects.values_list("token", flat=True)) == ["open"]


def test_invitations_stay_a_month_after_their_end(people: Personas) -> None:
    for name, days in (("long-over", 31), ("just-over", 29), ("open", -1)):
        Invitation.objects.create(
            project=people.vision,
            email=f"{name}@example.org",
            role=Role.VIEWER,
            token_hash=name,
            invited_by=people.alice,
            expires_at=clock.now() - days * _DAY,
        )
    forget_expired()
    left = set(Invitation.objects.values_list("token_hash", flat=True))
    assert left == {"just-over", "open"}


def test_answers_are_kept_for_a_day() -> None:
    IdempotencyRecord.objects.create(principal="usr_1", key="old", fingerprint="x")
    with clock.frozen(clock.now() + timedelta(hours=25)):
        IdempotencyRecord.objects.create(principal="usr_1", key="new", fingerprint="x")
        forget_answers()
    assert list(IdempotencyRecord.objects.values_list("key", flat=True)) == ["new"]
