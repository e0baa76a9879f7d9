"""Writes sign-ins and password changes to the audit log."""

from typing import Any

from allauth.account.signals import (
    password_changed,
    password_reset,
    user_logged_in,
    user_logged_out,
    user_signed_up,
)

from portal.accounts import audit
from portal.accounts.models import User
from portal.accounts.outbox import mail_problem
from portal.accounts.request_origin import with_user
from portal.core import problems


def _record(verb: str, user: User) -> None:
    with_user(user)
    audit.record(verb, kind="user", target=user, label=user.email)


def _on_sign_in(*, user: User, **_: Any) -> None:
    _record("user.sign_in", user)


def _signed_out(*, user: User | None, **_: Any) -> None:
    if user is not None and user.is_authenticated:
        _record("user.sign_out", user)


def _signed_up(*, user: User, **_: Any) -> None:
    _record("user.sign_up", user)


def _password_changed(*, user: User, **_: Any) -> None:
    _record("user.password", user)


problems.add_check("mail", mail_problem)
user_logged_in.connect(_on_sign_in)
user_logged_out.connect(_signed_out)
user_signed_up.connect(_signed_up)
password_changed.connect(_password_changed)
password_reset.connect(_password_changed)
