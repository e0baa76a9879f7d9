"""Signals of this app, sent on commit."""

from dataclasses import dataclass

from portal.core.events import DomainSignal


@dataclass(frozen=True)
class AccountsChanged:
    """A change that pages may show. `topic` is a project, team or user id."""

    topic: str
    change: str


@dataclass(frozen=True)
class ServiceAccountEnded:
    """A service account that was disabled or deleted, with the reason as a sentence."""

    user_id: str
    reason: str


accounts_changed: DomainSignal[AccountsChanged] = DomainSignal("accounts_changed")
service_account_ended: DomainSignal[ServiceAccountEnded] = DomainSignal("service_account_ended")


def send_accounts_changed(topic: str, what: str) -> None:
    """Send the signal once the surrounding transaction has committed."""
    accounts_changed.send_on_commit(AccountsChanged(topic, what))
