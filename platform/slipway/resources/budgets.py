"""Budgets: what projects, teams and people may spend."""

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.spend import BudgetChange, BudgetIn, BudgetOut, BudgetPeriod, OverrideIn


class Budgets:
    """The budgets that concern the caller.

    GET, POST budgets · GET, PATCH, DELETE budgets/{id} · POST budgets/{id}/override
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Pages[BudgetOut]:
        """List budgets of visible projects and teams and one's own. Administrators see all."""
        return Pages(self._connection, ("budgets",), PageOf[BudgetOut])

    def get(self, budget: str) -> BudgetOut:
        """Return one budget."""
        return self._connection.fetch(BudgetOut, "GET", "budgets", budget)

    def create(
        self,
        limit_nano_usd: int,
        *,
        project: str | None = None,
        team: str | None = None,
        person: str | None = None,
        period: BudgetPeriod = BudgetPeriod.MONTH,
        stops: bool = True,
        counts_exempt: bool = False,
    ) -> BudgetOut:
        """Limit exactly one of a project, a team and a person (by e-mail address).

        Without `stops` it only notifies. `counts_exempt` stops endpoints too.
        """
        body = build(
            BudgetIn,
            project=project,
            team=team,
            person=person,
            period=period,
            limit_nano_usd=limit_nano_usd,
            stops=stops,
            counts_exempt=counts_exempt,
        )
        return self._connection.fetch(BudgetOut, "POST", "budgets", body=body)

    def edit(
        self,
        budget: str,
        *,
        limit_nano_usd: int | None = None,
        stops: bool | None = None,
        counts_exempt: bool | None = None,
    ) -> BudgetOut:
        """Change what is given."""
        body = build(
            BudgetChange, limit_nano_usd=limit_nano_usd, stops=stops, counts_exempt=counts_exempt
        )
        return self._connection.fetch(BudgetOut, "PATCH", "budgets", budget, body=body)

    def delete(self, budget: str) -> None:
        """Remove a limit."""
        self._connection.send("DELETE", "budgets", budget)

    def override(self, budget: str, *, hours: float, reason: str) -> BudgetOut:
        """Suspend enforcement for some hours, with the reason in the audit log. 0 ends it."""
        body = build(OverrideIn, hours=hours, reason=reason)
        return self._connection.fetch(BudgetOut, "POST", "budgets", budget, "override", body=body)
