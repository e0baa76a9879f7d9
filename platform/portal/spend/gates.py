"""Policy of budgets: visible ones may be read, some may be changed."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import SignedIn
from portal.accounts.principal import require_principal
from portal.core.errors import NotFound
from portal.spend.models import Budget
from portal.spend.services.budgets import require_right
from slipway.schemas.accounts import Scope


@dataclass(frozen=True)
class BudgetGate:
    """People who can see the budget in the path or, with `change`, those who may change it."""

    scope: Scope
    change: bool = False

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Store the budget on the request. Raise Unauthenticated, NotFound or Forbidden."""
        SignedIn(self.scope).check(request, path)
        principal = require_principal(request)
        budgets = Budget.objects.visible_to(principal).filter(pk=path["budget"])
        budget = budgets.select_related("project", "team", "person").first()
        if budget is None:
            raise NotFound
        if self.change:
            require_right(budget, principal.user)
        request.gated_budget = budget  # type: ignore[attr-defined]

    def describe(self) -> str:
        return (
            "owners of the limited project or team, administrators"
            if self.change
            else "members of the limited project or team"
        )


def gated_budget(request: HttpRequest) -> Budget:
    """Return the budget stored by the gate of this request."""
    budget: Budget = request.gated_budget  # type: ignore[attr-defined]
    return budget
