"""Service accounts of projects, and the people who have used them."""

from collections.abc import Collection
from typing import ClassVar

from django.db import models
from django.db.models import Count, Max, Q

from portal.accounts.models.people import User
from portal.accounts.models.tenancy import Membership, Project
from portal.core import clock
from portal.core.models import IdField, Row
from slipway.schemas.accounts import Role, ServiceAccountState

# Part of the address of every service account. It is no domain, and nobody with it is invited.
ADDRESS_END = ".service-account"


def address_of_account(name: str, project: Project) -> str:
    """Return the address that stands for a service account where a person has an e-mail address."""
    return f"{name}@{project.slug}{ADDRESS_END}"


def is_service_address(email: str) -> bool:
    """Return True if an address can only be that of a service account."""
    return email.strip().lower().endswith(ADDRESS_END)


class ServiceAccountQuerySet(models.QuerySet["ServiceAccount"]):
    """Queryset of service accounts."""

    def of_project(self, project: Project) -> "ServiceAccountQuerySet":
        """Service accounts of a project that are not deleted, with their role and their creator."""
        rows = self.filter(project=project, deleted_at__isnull=True)
        return rows.select_related("project", "user", "membership", "created_by")

    def with_use(self) -> "ServiceAccountQuerySet":
        """Add `token_count`, the usable tokens, and `last_used_at`, the last use of any token."""
        usable = Q(user__tokens__revoked_at__isnull=True) & Q(
            user__tokens__expires_at__gt=clock.now()
        )
        return self.annotate(
            token_count=Count("user__tokens", filter=usable),
            last_used_at=Max("user__tokens__last_used_at"),
        )

    def matching(self, text: str) -> "ServiceAccountQuerySet":
        """Return accounts whose name or description contains `text`, or all if it is empty."""
        if not text:
            return self
        return self.filter(Q(name__icontains=text) | Q(description__icontains=text))


class ServiceAccount(Row):
    """An identity of one project for automation. `user` is the row it acts as.

    A name is used once in a project, so that history never means two accounts by one name.
    `membership` has the role; it is None once the account is deleted.
    """

    id = IdField("svc")
    user = models.OneToOneField(User, on_delete=models.PROTECT, related_name="service_account")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="service_accounts")
    membership = models.OneToOneField(
        Membership, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    name = models.CharField(max_length=48)
    description = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[ServiceAccountQuerySet] = ServiceAccountQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["project", "name"], name="service_account_once_a_project"
            ),
            models.CheckConstraint(
                condition=Q(deleted_at__isnull=True) | Q(membership__isnull=True),
                name="service_account_deleted_has_no_role",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def role(self) -> Role:
        """The role in its project, the lowest one if the account is deleted."""
        return Role(self.membership.role) if self.membership is not None else Role.VIEWER

    @property
    def state(self) -> ServiceAccountState:
        """`active`, or `disabled` while its tokens and schedules do nothing."""
        if self.deleted_at is None and self.user.is_active:
            return ServiceAccountState.ACTIVE
        return ServiceAccountState.DISABLED


class ServiceAccountOperator(Row):
    """A person who has made a token of a service account, or has let a schedule run as it.

    What the account asks for is partly theirs, so they do not approve it.
    """

    id = IdField("svo")
    account = models.ForeignKey(ServiceAccount, on_delete=models.CASCADE, related_name="operators")
    person = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["account", "person"], name="service_account_operator_once"
            ),
        ]


def operator_ids(user_ids: Collection[str]) -> set[str]:
    """Return the ids of the people who have used the service accounts among some users."""
    operators = ServiceAccountOperator.objects.filter(account__user__in=user_ids)
    return set(operators.values_list("person_id", flat=True))


def accounts_operated_by(user: User) -> "models.QuerySet[ServiceAccountOperator, str]":
    """Return the user ids of the service accounts that a person has used, for a subquery."""
    return ServiceAccountOperator.objects.filter(person=user).values_list(
        "account__user", flat=True
    )
