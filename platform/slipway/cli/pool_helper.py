"""`slipway pool helper`: one's own helper on a login node of Slurm."""

import time
from typing import Final

from slipway.cli.session import Session
from slipway.errors import Conflict, InvalidInput, RateLimited, ServerError, Unavailable
from slipway.slurm_helper import SlurmHelper

_LONGEST_PAUSE_S: Final = 30.0


def run_helper(session: Session, pool: str) -> None:
    """Serve the requests of one's own helper for ever. Links the account first, if there is none.

    Raises InvalidInput for a pool without helpers or a refused account, and Unauthenticated or
    Forbidden once the token is not accepted any more.
    """
    output = session.output
    portal = session.client.pools
    portal.helper(pool)  # refuses a pool that needs none
    is_linked = portal.account(pool).name is not None
    if not is_linked:
        portal.link(pool)
    program = SlurmHelper(output.note)
    output.note(f"The helper for pool {pool} runs. Stop it with Ctrl-C; your jobs go on.")
    seen, failures = 0, 0
    while True:
        try:
            seen = program.serve_once(portal, pool, seen)
            if not is_linked:
                is_linked = _is_linked(session, pool)
            failures = 0
        except Conflict as problem:
            output.note(f"An answer was not accepted: {problem.message}")
        except (Unavailable, ServerError, RateLimited) as problem:
            if not failures:
                output.note(f"{problem.message} The helper tries again.")
            failures += 1
            time.sleep(min(_LONGEST_PAUSE_S, 2.0**failures))


def _is_linked(session: Session, pool: str) -> bool:
    """Return True once the account is linked, and report it. Raises InvalidInput if refused."""
    account = session.client.pools.account(pool)
    if account.name:
        session.output.note(f"Linked account {account.name}.")
    elif account.problem:
        raise InvalidInput(
            f"The account could not be linked: {account.problem}",
            next_step="Correct the cause and start the helper again.",
        )
    return account.name is not None
