"""Services for quotas, by administrators."""

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project, Team
from portal.accounts.models.tenancy import Group
from portal.compute.models import Quota


def set_quota(
    *,
    group: Group,
    cpu_millis: int | None = None,
    gpus: int | None = None,
    running: int | None = None,
    weight: float = 1.0,
) -> Quota:
    """Replace the quota of a project or team. Running work continues."""
    details = {"cpu_millis": cpu_millis, "gpus": gpus, "running": running, "weight": weight}
    owner = {"team": group} if isinstance(group, Team) else {"project": group}
    with transaction.atomic():
        quota, _ = Quota.objects.update_or_create(**owner, defaults=details)
        audit.record(
            "quota.set",
            kind="quota",
            target=quota,
            label=group.slug,
            project=group if isinstance(group, Project) else None,
            team=group if isinstance(group, Team) else None,
            after=details,
        )
    return quota
