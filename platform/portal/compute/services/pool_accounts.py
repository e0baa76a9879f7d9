"""Accounts that people have in the systems of pools, and the proof that they are theirs.

A person proves an account by submitting a job of a secret name there, as themselves: its owner is
what the engine tells, and not what anybody claims. In a pool of helpers it is the person's own
helper that submits the job and reports its owner, so there the account is that person's word: it
gives them nothing, because Slipway never acts as that account. Nothing is derived from a name or
an address. Where an engine tells no owners, an administrator gives the accounts, in the settings of
the pool.
"""

import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta

from portal.accounts import audit
from portal.accounts.models import User
from portal.accounts.principal import Principal
from portal.compute.engines import Engine, Owner, engine_kinds
from portal.compute.models import Pool, PoolAccount
from portal.compute.services.pool_helpers import helper_command, helper_state, uses_helpers
from portal.core import clock
from portal.core.errors import InvalidInput

# So long a person has to submit the job.
PROOF_WITHIN = timedelta(hours=1)
# Numbers of people's accounts (login.defs: UID_MIN, UID_MAX). All others are of the system.
_PEOPLE = range(1000, 60_001)


def account_name(*, pool: Pool, user: User) -> str:
    """Return the account whose work this would be, "" where a pool has one owner.

    Raises InvalidInput for a person who has not proved an account yet.
    """
    if not has_accounts(pool):
        return ""
    _refuse_service_account(pool, user)
    given = _given_accounts(pool)
    if given is not None:
        if user.email.lower() not in given:
            raise InvalidInput(
                f"Work in pool {pool.name} belongs to people, and you have no account there.",
                code="account_not_given",
                field="pool",
                next_step=f"Ask an administrator to add {user.email} to `people` of the pool.",
            )
        return given[user.email.lower()]
    account = PoolAccount.objects.filter(pool=pool, user=user).first()
    if account is None or not account.unix_name:
        raise InvalidInput(
            f"Work in pool {pool.name} belongs to your own account there, and it is not linked.",
            code="account_not_linked",
            field="pool",
            next_step=f"Run `{helper_command(pool)}` on a login node of the cluster: it links it."
            if uses_helpers(pool)
            else f"Link it under Settings → Profile, or run `slipway pool link {pool.name}`.",
        )
    return account.unix_name


def accounts_of(principal: Principal) -> list[tuple[Pool, PoolAccount | None, str]]:
    """Return the pools in which one proves an account, each with that account.

    The third is the state of one's helper, "" in a pool without helpers.
    """
    pools = Pool.objects.visible_to(principal).order_by("name")
    personal = [pool for pool in pools if proves_accounts(pool)]
    if not personal:
        return []
    rows = PoolAccount.objects.filter(pool__in=personal, user=principal.user)
    accounts = {account.pool_id: account for account in rows}
    return [
        (pool, accounts.get(pool.pk), helper_state(pool, principal.user_id)) for pool in personal
    ]


def proof_command(pool: Pool, account: PoolAccount | None) -> str | None:
    """Return the command that proves an account, None unless a proof is waited for."""
    if account is None or not account.code or account.asked_at is None:
        return None
    if account.asked_at <= clock.now() - PROOF_WITHIN:
        return None
    if uses_helpers(pool):
        return helper_command(pool)
    return engine_kinds()[pool.engine].link_command(pool.settings, account.code)


def unlinked_pools(pools: Sequence[Pool], user: User) -> list[Pool]:
    """Return those of `pools` in which a person has to link an account before any work."""
    personal = [pool for pool in pools if proves_accounts(pool)]
    if not personal:
        return []
    accounts = PoolAccount.objects.filter(pool__in=personal, user=user).exclude(unix_name="")
    linked = set(accounts.values_list("pool_id", flat=True))
    return [pool for pool in personal if pool.pk not in linked]


def has_accounts(pool: Pool) -> bool:
    """Return True if work in a pool belongs to the account of the person who submits it."""
    return engine_kinds()[pool.engine].needs_account(pool.settings)


def proves_accounts(pool: Pool) -> bool:
    """Return True if people prove their accounts in a pool."""
    return has_accounts(pool) and _given_accounts(pool) is None


def given_account(pool: Pool, user: User) -> str | None:
    """Return the account that an administrator gave a person in a pool, None without one."""
    given = _given_accounts(pool) if has_accounts(pool) else None
    return (given or {}).get(user.email.lower())


def _given_accounts(pool: Pool) -> Mapping[str, str] | None:
    """Return the accounts in the settings of a pool by e-mail, None where people prove theirs."""
    return engine_kinds()[pool.engine].given_accounts(pool.settings)


def request_link(*, pool: Pool, user: User) -> PoolAccount:
    """Create the code of a proof, or return the one that is waited for. A linked account stays.

    Raises InvalidInput for a pool without accounts of people, or whose administrator gives them.
    """
    if not has_accounts(pool):
        raise InvalidInput(
            f"All work in pool {pool.name} has one owner, so there is no account to link.",
            code="no_accounts",
            field="pool",
            next_step="Submit a job there.",
        )
    if _given_accounts(pool) is not None:
        raise InvalidInput(
            f"An administrator gives the accounts of pool {pool.name}, so none is linked.",
            code="accounts_are_given",
            field="pool",
            next_step=f"Ask an administrator to add {user.email} to `people` of the pool.",
        )
    _refuse_service_account(pool, user)
    recent = clock.now() - PROOF_WITHIN
    awaited = PoolAccount.objects.filter(pool=pool, user=user, asked_at__gt=recent)
    awaited = awaited.exclude(code="")
    if (account := awaited.first()) is not None:
        return account
    account, _ = PoolAccount.objects.update_or_create(
        pool=pool,
        user=user,
        defaults={
            "code": f"slipway-link-{secrets.token_hex(12)}",
            "asked_at": clock.now(),
            "problem": "",
        },
    )
    return account


def _refuse_service_account(pool: Pool, user: User) -> None:
    """Raise InvalidInput for a service account: all who use it would work as one person there."""
    if user.is_service_account:
        raise InvalidInput(
            f"Work in pool {pool.name} belongs to people, and {user.display_name} is none.",
            code="person_needed",
            field="pool",
            next_step="Choose another pool, or submit it as a person.",
        )


def check_links(pool: Pool, engine: Engine) -> None:
    """Look for the jobs of all open proofs of a pool. Raises EngineAway."""
    recent = clock.now() - PROOF_WITHIN
    for account in PoolAccount.objects.filter(pool=pool, asked_at__gt=recent).exclude(code=""):
        owners = engine.owners_of(account.code)
        if owners:
            _link(account, owners)


def has_open_links(pool: Pool) -> bool:
    """Return True if somebody may be about to prove an account."""
    recent = clock.now() - PROOF_WITHIN
    return PoolAccount.objects.filter(pool=pool, asked_at__gt=recent).exclude(code="").exists()


def _link(account: PoolAccount, owners: frozenset[Owner]) -> None:
    proofs = PoolAccount.objects.filter(pk=account.pk, code=account.code)
    owner, *others = owners
    problem = ""
    if others:
        # Everybody on the cluster can read the name of a job, and submit another of that name.
        problem = "Several accounts have submitted a job of this name."
    elif owner.number not in _PEOPLE:
        problem = f"{owner.name} is an account of the system, and not of a person."
    if problem:
        proofs.update(code="", problem=problem)
        return
    before = account.unix_name
    if proofs.update(code="", problem="", unix_name=owner.name, linked_at=clock.now()):
        audit.record(
            "pool.link",
            kind="pool",
            target=account.pool,
            label=account.pool.name,
            before={"account": before},
            after={"account": owner.name, "person": account.user.email},
        )
