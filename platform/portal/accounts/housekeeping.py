"""Delete expired credentials: sessions, sign-on tokens, invitations."""

from datetime import timedelta

from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from oauth2_provider.models import clear_expired

from portal.accounts.models import Invitation
from portal.core import clock

# Expired and revoked invitations are listed for this long, so that people see their outcome.
INVITATION_KEPT = timedelta(days=30)


def forget_expired_sessions() -> int:
    """Delete expired sessions and their browser details. Return the number of sessions deleted."""
    gone, _ = Session.objects.filter(expire_date__lt=clock.now()).delete()
    UserSession.objects.exclude(session_key__in=Session.objects.values("session_key")).delete()
    return gone


def forget_expired_sign_on() -> None:
    """Delete grants and tokens of single sign-on past their end."""
    clear_expired()


def forget_unused_invitations() -> int:
    """Delete unaccepted invitations that expired a month ago. Return the number deleted."""
    before = clock.now() - INVITATION_KEPT
    gone, _ = Invitation.objects.filter(accepted_at__isnull=True, expires_at__lt=before).delete()
    return gone
