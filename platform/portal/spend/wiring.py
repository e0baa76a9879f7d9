"""Puts budgets in force, and hurries where money is at stake."""

from portal.accounts.notifications import register_notifications
from portal.core.enqueue import enqueue_now
from portal.spend.admission import BudgetAdmission
from portal.spend.notifications import budget_notifications
from portal.spend.tasks import meter
from portal.workloads.ports import register_admission
from portal.workloads.signals import LeaseClosed, lease_closed
from slipway.schemas.accounts import Scope


def _when_closed(_news: LeaseClosed) -> None:
    enqueue_now(meter)


register_admission(BudgetAdmission())
lease_closed.connect(_when_closed)
register_notifications(Scope.WORKLOADS_READ, budget_notifications)
