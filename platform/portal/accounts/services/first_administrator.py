"""The one account created without an invitation: the first administrator's."""

from collections.abc import Callable

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import User
from portal.accounts.models.service_accounts import is_service_address
from portal.core.errors import Conflict, InvalidInput


def administrator_exists() -> bool:
    """Return True if the installation has an active administrator."""
    return User.objects.filter(is_administrator=True, is_active=True).exists()


def check_email(email: str) -> None:
    """Raise InvalidInput unless `email` can be an e-mail address."""
    try:
        validate_email(email)
    except ValidationError as error:
        raise InvalidInput(
            f"{email!r} is not an e-mail address.",
            field="email",
            next_step="Enter a valid e-mail address.",
        ) from error
    if is_service_address(email):
        raise InvalidInput(
            f"{email} is an address of service accounts.",
            field="email",
            next_step="Enter the e-mail address of a person.",
        )


def check_password(password: str, *, email: str) -> None:
    """Raise InvalidInput when the password is too weak for an administrator."""
    try:
        validate_password(password, User(email=email))
    except ValidationError as error:
        raise InvalidInput(
            " ".join(error.messages), field="password", next_step="Choose another password."
        ) from error


def create_first_administrator(
    *, email: str, password: str, before_commit: Callable[[], None]
) -> User:
    """Create the administrator of a fresh installation.

    `before_commit` hands over the password inside the transaction: if that fails, the account is
    not created either. Raises Conflict when there is an administrator already, and InvalidInput for
    an invalid address or password.
    """
    check_email(email)
    check_password(password, email=email)
    with transaction.atomic():
        if administrator_exists():
            raise Conflict("An administrator already exists.", next_step="Sign in.")
        user = User.objects.create_user(email, password, is_administrator=True)
        audit.record(
            "user.create",
            kind="user",
            target=user,
            label=user.email,
            after={"email": user.email, "is_administrator": True},
        )
        before_commit()
    return user
