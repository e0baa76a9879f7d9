"""A named environment of each tenant."""

from portal.accounts.models import Project, User
from portal.compute.models import EnvironmentVersion, NamedEnvironment
from portal.compute.services.named_environments import create_named_environment
from portal.compute.services.version_packages import version_packages

NUMBER = 61_247


def make_environment(*, project: Project, by: User) -> dict[str, str]:
    """Create a named environment with one version, whose number no other object has."""
    named = create_named_environment(
        project=project,
        by=by,
        name=f"packages-of-{by.name}".lower(),
        packages=version_packages(f"numpy\npackage-of-{by.name}", python=None),
    )
    NamedEnvironment.objects.filter(pk=named.pk).update(version=NUMBER)
    EnvironmentVersion.objects.filter(named=named).update(number=NUMBER)
    return {"named environment": named.name, "environment version": str(NUMBER)}
