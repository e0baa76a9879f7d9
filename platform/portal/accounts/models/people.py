"""People, and service accounts, which act as somebody but can never sign in."""

import secrets
from collections.abc import Iterator
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from portal.core.models import IdField, Row

# Ends the displayed name of a service account, so no person may have a name that ends so.
SERVICE_SUFFIX = " (service account)"


class UserQuerySet(models.QuerySet["User"]):
    """Queryset of people."""

    def people(self) -> "UserQuerySet":
        """Everybody but service accounts."""
        return self.filter(is_service_account=False)

    def matching(self, text: str) -> "UserQuerySet":
        """Return people whose name or e-mail address contains `text`, or all if it is empty."""
        return self.filter(Q(name__icontains=text) | Q(email__icontains=text)) if text else self


class UserManager(BaseUserManager["User"]):
    """Manager that creates people. It stores e-mail addresses in lower case."""

    def create_user(
        self, email: str, password: str | None = None, *, name: str = "", **extra: Any
    ) -> "User":
        """Create a person who signs in with `email`.

        Without a password, signing in with a password is not possible.
        """
        user = self.model(email=email.strip().lower(), name=name, **extra)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def get_by_natural_key(self, username: str | None) -> "User":
        """Find by e-mail, without regard to case."""
        return self.get(email__iexact=username)

    def get_queryset(self) -> UserQuerySet:
        """Return a `UserQuerySet`."""
        return UserQuerySet(self.model, using=self._db)

    def people(self) -> UserQuerySet:
        """Return everybody but service accounts."""
        return self.get_queryset().people()

    def matching(self, text: str) -> UserQuerySet:
        """Return people whose name or e-mail address contains `text`, or all if it is empty."""
        return self.get_queryset().people().matching(text)


class User(AbstractBaseUser, Row):
    """A person. Suspending (`is_active = False`) ends every session and token at once.

    The row of a service account (`is_service_account`) has a role in its one project like a person,
    but no password, and no session is ever valid for it.
    """

    id = IdField("usr")
    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=100, blank=True)
    is_active = models.BooleanField(default=True)
    is_administrator = models.BooleanField(default=False)
    is_service_account = models.BooleanField(default=False, db_default=False)

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects: ClassVar[UserManager] = UserManager()

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(Lower("email"), name="user_email_any_case"),
            models.CheckConstraint(
                condition=Q(is_service_account=False)
                | Q(is_administrator=False, password__startswith=UNUSABLE_PASSWORD_PREFIX),
                name="user_service_account_cannot_sign_in",
            ),
        ]

    def __str__(self) -> str:
        return self.display_name if self.is_service_account else self.name or self.email

    @property
    def display_name(self) -> str:
        """The name shown to other members."""
        name = self.name or self.email.partition("@")[0]
        return f"{name}{SERVICE_SUFFIX}" if self.is_service_account else name

    @property
    def actor_name(self) -> str:
        """The name in the audit log: the e-mail address of a person."""
        return self.display_name if self.is_service_account else self.email

    def get_session_auth_hash(self) -> str:
        """Return the value that sessions and signed links have to match.

        It is another one each time for a service account, so none of them is ever valid.
        """
        return secrets.token_hex(32) if self.is_service_account else super().get_session_auth_hash()

    def get_session_auth_fallback_hash(self) -> Iterator[str]:
        """Yield the values of earlier keys of the installation."""
        if not self.is_service_account:
            yield from super().get_session_auth_fallback_hash()
