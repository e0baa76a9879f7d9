"""Payers of schedules: the person who saves a schedule, or a service account that they may use."""

from portal.accounts.models import Project, ServiceAccount, User
from portal.accounts.services.service_accounts import may_use, note_operator, require_use
from portal.core.errors import InvalidInput
from portal.pipelines.models import ProjectSchedule
from portal.training.submitters import reason_not_to_submit
from slipway.schemas.accounts import Role, ServiceAccountState
from slipway.schemas.schedules import RUN_AS_ME

_SUBMITTERS = [role.value for role in Role if role.at_least(Role.CONTRIBUTOR)]


def named_payer(*, project: Project, by: User, run_as: str | None) -> User:
    """Return the caller, or the service account of that name.

    Raises InvalidInput for an account that does not exist or cannot submit, and Forbidden for a
    person who may not use it: they could do by a schedule what their own role forbids.
    """
    if run_as in (None, RUN_AS_ME):
        return by
    account = ServiceAccount.objects.of_project(project).filter(name=run_as).first()
    if account is None:
        raise InvalidInput(
            f"There is no service account {run_as} in project {project.slug}.",
            code="no_such_account",
            field="run_as",
            next_step="List them with `slipway service-account list`, or leave this out to pay.",
        )
    require_use(account, by)
    reason = reason_not_to_submit(project=project, user=account.user)
    if reason:
        raise InvalidInput(
            reason,
            code="account_cannot_submit",
            field="run_as",
            next_step="Enable it and give it the role contributor, or choose another one.",
        )
    return account.user


def next_payer(*, schedule: ProjectSchedule, by: User) -> User:
    """Return who pays after a change that names nobody.

    A service account goes on to pay if the caller may use it. Else the caller pays.
    """
    account = account_of(schedule.owner)
    is_active = account is not None and account.state is ServiceAccountState.ACTIVE
    if account is None or not is_active or not may_use(account, by):
        return by
    reason = reason_not_to_submit(project=schedule.project, user=account.user)
    return by if reason else account.user


def require_use_of_payer(*, schedule: ProjectSchedule, by: User) -> None:
    """Raise Forbidden if a service account pays that the caller may not use."""
    account = account_of(schedule.owner)
    if account is not None:
        require_use(account, by)


def payer_choices(
    *, project: Project, by: User, schedule: ProjectSchedule | None = None
) -> list[tuple[str, str]]:
    """Return the caller and the service accounts that the caller may use, as forms offer them.

    The caller is "" unless an account pays by now, so that a form that is saved without a change
    changes nothing.
    """
    caller = RUN_AS_ME if schedule is not None and schedule.owner.is_service_account else ""
    rows = ServiceAccount.objects.of_project(project).filter(
        user__is_active=True, membership__role__in=_SUBMITTERS
    )
    accounts = list(rows.order_by("name"))
    usable = accounts if accounts and may_use(accounts[0], by) else []
    return [(caller, "You"), *((each.name, each.user.display_name) for each in usable)]


def note_payer(payer: User, by: User) -> None:
    """Remember that a person lets a service account act, unless it does so by itself."""
    account = account_of(payer)
    if account is not None and payer.pk != by.pk:
        note_operator(account, by)


def account_of(user: User) -> ServiceAccount | None:
    """Return the service account that a user is, None for a person."""
    if not user.is_service_account:
        return None
    return ServiceAccount.objects.select_related("project", "user", "membership").get(user=user)
