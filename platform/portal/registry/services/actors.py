"""Actors of a request: a person, or a job on behalf of the person who submitted it."""

from dataclasses import dataclass

from portal.accounts.models import Project, User
from portal.accounts.models.tenancy import role_in
from portal.accounts.principal import Principal
from portal.core.errors import Forbidden
from slipway.schemas.accounts import Role

_WORKLOAD = "wl_"


@dataclass(frozen=True)
class Actor:
    """The user of a request. `workload_id` is empty for a person."""

    user: User
    workload_id: str = ""

    @classmethod
    def of(cls, principal: Principal) -> "Actor":
        """Return the actor of a request. A job's token has the id of the job."""
        token_id = principal.token.pk if principal.token else ""
        return cls(principal.user, token_id if token_id.startswith(_WORKLOAD) else "")


def require_maintainer(project: Project, by: Actor, *, to: str) -> None:
    """Raise Forbidden unless a person with the role of maintainer acts.

    Neither a job nor a service account is a person.
    """
    if by.user.is_service_account:
        raise Forbidden(
            f"Only a person may {to}, and this is a service account.",
            code="person_needed",
            next_step="Ask a maintainer or an owner of the project.",
        )
    role = role_in(by.user, project)
    if by.workload_id or role is None or not role.at_least(Role.MAINTAINER):
        raise Forbidden(
            f"Only a maintainer of the project may {to}.",
            code="role_too_low",
            next_step="Ask a maintainer or an owner of the project.",
        )
