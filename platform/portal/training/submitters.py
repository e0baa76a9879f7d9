"""The people in whose name jobs are submitted later, by a sweep or a schedule."""

from portal.accounts.models import Project, User
from portal.accounts.models.tenancy import role_in
from slipway.schemas.accounts import Role


def reason_not_to_submit(*, project: Project, user: User) -> str:
    """Return why jobs cannot be submitted in the name of a person, or ""."""
    if project.archived_at is not None:
        return "The project is archived."
    role = role_in(user, project) if user.is_active else None
    if user.is_service_account and not user.is_active:
        return f"The service account {user.name} is disabled."
    if role is None or role.rank < Role.CONTRIBUTOR.rank:
        return f"{user.display_name} may no longer submit jobs in this project."
    return ""
