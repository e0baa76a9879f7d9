"""People."""

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from portal.core.models import IdField, Row


class UserQuerySet(models.QuerySet["User"]):
    """Queryset of people."""

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

    def matching(self, text: str) -> UserQuerySet:
        """Return people whose name or e-mail address contains `text`, or all if it is empty."""
        return self.get_queryset().matching(text)


class User(AbstractBaseUser, Row):
    """A person. Suspending (`is_active = False`) ends every session and token at once."""

    id = IdField("usr")
    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=100, blank=True)
    is_active = models.BooleanField(default=True)
    is_administrator = models.BooleanField(default=False)

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects: ClassVar[UserManager] = UserManager()

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(Lower("email"), name="user_email_any_case"),
        ]

    def __str__(self) -> str:
        return self.name or self.email

    @property
    def display_name(self) -> str:
        """The name shown to other members."""
        return self.name or self.email.partition("@")[0]
