"""Services that set, change and override budgets: owners of what is limited, administrators."""

from datetime import timedelta

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project, Team, User
from portal.accounts.models.tenancy import Group, role_in
from portal.core import clock
from portal.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from portal.spend.budget_usage import measure
from portal.spend.models import Budget
from slipway.schemas.accounts import Role
from slipway.schemas.spend import BudgetIn


def set_budget(*, by: User, spec: BudgetIn) -> Budget:
    """Limit a project, a team or a person, and measure at once.

    Raises NotFound for what is not visible, Forbidden without the right, Conflict when there is
    such a budget already.
    """
    project, team, person = _resolve_scope(by, spec)
    budget = Budget(
        project=project,
        team=team,
        person=person,
        period=spec.period,
        limit_nano_usd=spec.limit_nano_usd,
        stops=spec.stops,
        counts_exempt=spec.counts_exempt,
        made_by=by,
    )
    with transaction.atomic():
        _add(budget)
        _record("budget.create", budget, after=_facts(budget))
    return measure(budget.pk, clock.now()) or budget


def _add(budget: Budget) -> None:
    try:
        with transaction.atomic():
            budget.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict(
            f"A budget of {budget.scope_name} already exists for this period.",
            code="budget_exists",
            field="period",
            next_step="Change the limit of the existing one.",
        ) from error


def change_budget(
    *,
    budget: Budget,
    by: User,
    limit_nano_usd: int | None = None,
    stops: bool | None = None,
    counts_exempt: bool | None = None,
) -> Budget:
    """Change the attributes given, and measure at once. Raise Forbidden without the right."""
    require_right(budget, by)
    with transaction.atomic():
        current = Budget.objects.select_for_update(of=("self",), no_key=True).get(pk=budget.pk)
        old = _facts(current)
        given = {"limit_nano_usd": limit_nano_usd, "stops": stops, "counts_exempt": counts_exempt}
        for column, value in given.items():
            if value is not None:
                setattr(current, column, value)
        before, after = audit.difference(old, _facts(current))
        if after:
            current.save(update_fields=list(given))
            _record("budget.change", current, before=before, after=after)
    return measure(current.pk, clock.now()) or current


def remove_budget(*, budget: Budget, by: User) -> None:
    """Remove a limit. Raises Forbidden without the right."""
    require_right(budget, by)
    with transaction.atomic():
        # Lock order as in measuring and reserving: the budget's row first, then its reservations.
        Budget.objects.select_for_update(of=("self",)).filter(pk=budget.pk).first()
        _record("budget.delete", budget, before=_facts(budget))
        budget.delete()


def override_budget(*, budget: Budget, by: User, hours: float, reason: str) -> Budget:
    """Override the budget for some hours from now (0 ends it). Audited with its reason.

    Raises Forbidden without the right, InvalidInput without a reason.
    """
    require_right(budget, by)
    if not reason.strip():
        raise InvalidInput("Give a reason.", field="reason", next_step="A few words are enough.")
    until = clock.now() + timedelta(hours=hours) if hours > 0 else None
    with transaction.atomic():
        budgets = Budget.objects.filter(pk=budget.pk)
        reason = reason[:300]
        if not budgets.update(
            override_until=until, override_reason=reason if until else "", override_by=by
        ):
            raise NotFound
        _record(
            "budget.override",
            budget,
            after={"until": until.isoformat() if until else None, "reason": reason},
        )
    budget.refresh_from_db()
    return budget


def may_change(budget: Budget, by: User) -> bool:
    """Return True if the person may change the budget. Only administrators change personal ones."""
    group: Group | None = budget.project or budget.team
    return by.is_administrator or (group is not None and role_in(by, group) == Role.OWNER)


def require_right(budget: Budget, by: User) -> None:
    """Raise Forbidden unless the person may change the budget."""
    if not may_change(budget, by):
        raise _not_allowed()


def _not_allowed() -> Forbidden:
    return Forbidden(
        "Only owners of the project or team and administrators can set its budgets. Only "
        "administrators can set budgets of people.",
        code="role_too_low",
        next_step="Ask an owner or an administrator.",
    )


def _resolve_scope(
    by: User, requested: BudgetIn
) -> tuple[Project | None, Team | None, User | None]:
    given = [item for item in (requested.project, requested.team, requested.person) if item]
    if len(given) != 1:
        raise InvalidInput(
            "Give exactly one of project, team and person.",
            code="one_of_three",
            field="project",
            next_step="A budget limits exactly one of them.",
        )
    if requested.person:
        if not by.is_administrator:
            raise _not_allowed()
        person = User.objects.filter(email__iexact=requested.person).first()
        if person is None:
            raise InvalidInput(
                "No user has this e-mail address.",
                code="no_such_person",
                field="person",
                next_step="See Settings → People.",
            )
        return None, None, person
    if requested.project:
        project = Project.objects.live().filter(slug=requested.project).first()
        _require_owner(by, project)
        return project, None, None
    team = Team.objects.filter(slug=requested.team or "").first()
    _require_owner(by, team)
    return None, team, None


def _require_owner(by: User, group: Group | None) -> None:
    role = role_in(by, group) if group is not None else None
    if group is None or (role is None and not by.is_administrator):
        raise NotFound
    if role != Role.OWNER and not by.is_administrator:
        raise _not_allowed()


def _facts(budget: Budget) -> audit.Facts:
    return {
        "limit_nano_usd": budget.limit_nano_usd,
        "period": str(budget.period),
        "stops": budget.stops,
        "counts_exempt": budget.counts_exempt,
    }


def _record(
    verb: str,
    budget: Budget,
    *,
    before: audit.Facts | None = None,
    after: audit.Facts | None = None,
) -> None:
    audit.record(
        verb,
        kind="budget",
        target=budget,
        label=f"budget of {budget.scope_name}",
        project=budget.project,
        team=budget.team,
        before=before,
        after=after,
    )
