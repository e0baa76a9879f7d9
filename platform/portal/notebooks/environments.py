"""In which environment a notebook server runs: that of every node, or one with its own packages."""

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from portal.accounts.models import Project, User
from portal.compute.services.environments import (
    normalised,
    options_of,
    package_lines,
    use_environment,
)

# Packages that a server imports or offers to its user. The user's requirements may pin versions.
_SERVER = (
    *("ipykernel", "ipywidgets", "jupyterhub>=6,<7", "jupyterlab", "httpx>=0.28", "mlflow"),
    *("numpy", "platformdirs>=4.3", "pyarrow", "pydantic>=2.12", "rich>=14", "typer>=0.28"),
)


def environment_of(*, project: Project, by: User, requirements: str) -> str:
    """Return the digest of the environment, "" for that of every node. Raises InvalidInput."""
    canonical = normalised(requirements)
    lines = package_lines(canonical)
    if not lines:
        return ""
    named = {canonicalize_name(Requirement(line.partition(" --hash=")[0]).name) for line in lines}
    missing = [need for need in _SERVER if canonicalize_name(Requirement(need).name) not in named]
    return use_environment(
        project=project, by=by, requirements="\n".join([*options_of(canonical), *lines, *missing])
    ).digest
