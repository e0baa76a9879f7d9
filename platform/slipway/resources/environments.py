"""Named environments of a project: packages under a name, in numbered versions."""

from collections.abc import Iterator

from slipway.connection import Connection
from slipway.errors import Conflict
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.environments import (
    DefaultEnvironmentIn,
    DefaultEnvironmentOut,
    EnvironmentAuditOut,
    EnvironmentVersionDetail,
    EnvironmentVersionIn,
    EnvironmentVersionOut,
    NamedEnvironmentEdit,
    NamedEnvironmentIn,
    NamedEnvironmentOut,
)


class Environments:
    """The named environments of a project. `name` is that of one, `requirements` a file's text.

    That is a requirements file, an `environment.yml`, a `conda-lock.yml` or an `@EXPLICIT` list.
    `snapshot` is the digest of an uploaded folder (`client.snapshots.upload`), whose files it may
    name; `requirements_file` is the path of a file in it instead, by default that of a job.

    GET, POST projects/{project}/named-environments · GET, PATCH …/{environment} · GET, POST
    …/versions · GET …/versions/{number} · POST …/versions/{number}/build · POST …/archive, restore
    GET, PUT projects/{project}/default-environment
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(
        self, *, project: str, search: str | None = None, archived: bool = False
    ) -> Pages[NamedEnvironmentOut]:
        """List environments whose name contains `search`, or the archived ones, newest first."""
        query = {"q": search, "archived": "true" if archived else None}
        return Pages(self._connection, _path(project), PageOf[NamedEnvironmentOut], query)

    def get(self, name: str, *, project: str) -> NamedEnvironmentOut:
        """Return one environment, with its latest version."""
        return self._connection.fetch(NamedEnvironmentOut, "GET", *_path(project), name)

    def create(
        self,
        name: str,
        requirements: str | None = None,
        *,
        project: str,
        description: str | None = None,
        python: str | None = None,
        snapshot: str | None = None,
        requirements_file: str | None = None,
    ) -> NamedEnvironmentOut:
        """Create an environment with its first version, for a `python` such as `3.12`.

        Raises InvalidInput for a line that cannot be used, Conflict for a name that is taken.
        """
        body = build(
            NamedEnvironmentIn,
            name=name,
            requirements=requirements,
            snapshot=snapshot,
            requirements_file=requirements_file,
            description=description,
            python=python,
        )
        return self._connection.fetch(NamedEnvironmentOut, "POST", *_path(project), body=body)

    def edit(self, name: str, *, description: str, project: str) -> NamedEnvironmentOut:
        """Change the description. Packages change by a new version."""
        body = build(NamedEnvironmentEdit, description=description)
        segments = (*_path(project), name)
        return self._connection.fetch(NamedEnvironmentOut, "PATCH", *segments, body=body)

    def add_version(
        self,
        name: str,
        requirements: str | None = None,
        *,
        project: str,
        python: str | None = None,
        snapshot: str | None = None,
        requirements_file: str | None = None,
    ) -> EnvironmentVersionDetail:
        """Add a version with other packages or another Python. Earlier ones stay as they are."""
        body = build(
            EnvironmentVersionIn,
            requirements=requirements,
            snapshot=snapshot,
            requirements_file=requirements_file,
            python=python,
        )
        segments = (*_path(project), name, "versions")
        return self._connection.fetch(EnvironmentVersionDetail, "POST", *segments, body=body)

    def versions(self, name: str, *, project: str) -> Pages[EnvironmentVersionOut]:
        """List the versions of an environment, newest first."""
        segments = (*_path(project), name, "versions")
        return Pages(self._connection, segments, PageOf[EnvironmentVersionOut])

    def version(
        self, name: str, number: int | None = None, *, project: str
    ) -> EnvironmentVersionDetail:
        """Return one version, by default the latest, with its packages and builds."""
        latest = self.get(name, project=project).version if number is None else number
        segments = (*_path(project), name, "versions", str(latest))
        return self._connection.fetch(EnvironmentVersionDetail, "GET", *segments)

    def freeze(self, name: str, number: int | None = None, *, project: str) -> str:
        """Return the exact versions of packages that the first build resolved, one a line.

        Those of conda are a list that begins with `@EXPLICIT`, which makes the same environment.

        Raises Conflict for a version that is not built yet, or that has no exact versions.
        """
        version = self.version(name, number, project=project)
        if version.locked:
            return version.locked
        if version.build == "ready":
            raise Conflict(
                f"The build of {version.reference} has no exact versions, because some of its "
                "packages are not wheels of an index.",
                code="not_locked",
                next_step="Read them in its build log.",
            )
        raise Conflict(
            f"{version.reference} is not built yet, so its exact versions are not known.",
            code="not_built",
            next_step=f"Build it: slipway env build {version.reference}. Then freeze it again.",
        )

    def audit(self, name: str, number: int | None = None, *, project: str) -> EnvironmentAuditOut:
        """Return the known vulnerabilities of a version, by default the latest.

        They are those of the last daily check. This asks the portal alone.
        """
        return self.version(name, number, project=project).audit

    def start_build(
        self, name: str, number: int | None = None, *, project: str
    ) -> EnvironmentVersionDetail:
        """Request a build of a version, by default the latest, before a job needs it.

        Raises Conflict if no node may build it, or all that may have built it.
        """
        latest = self.get(name, project=project).version if number is None else number
        segments = (*_path(project), name, "versions", str(latest), "build")
        return self._connection.fetch(EnvironmentVersionDetail, "POST", *segments)

    def build_log(self, digest: str, *, project: str, node: str) -> Iterator[bytes]:
        """Yield the log of the latest build of packages with this digest on a node."""
        segments = ("projects", project, "environments", digest, "log")
        offset = 0
        while True:
            before = offset
            query: dict[str, str | int] = {"node": node, "offset": offset}
            with self._connection.stream(*segments, query=query) as body:
                for piece in body:
                    offset += len(piece)
                    yield piece
            if offset == before:
                return

    def archive(self, name: str, *, project: str) -> NamedEnvironmentOut:
        """Archive an environment: nothing new runs in it. Raises Conflict for the default."""
        segments = (*_path(project), name, "archive")
        return self._connection.fetch(NamedEnvironmentOut, "POST", *segments)

    def restore(self, name: str, *, project: str) -> NamedEnvironmentOut:
        """Restore an archived environment."""
        segments = (*_path(project), name, "restore")
        return self._connection.fetch(NamedEnvironmentOut, "POST", *segments)

    def default(self, *, project: str) -> str | None:
        """Return the name of the default environment, None for that of the installation."""
        segments = ("projects", project, "default-environment")
        return self._connection.fetch(DefaultEnvironmentOut, "GET", *segments).environment

    def set_default(self, name: str | None, *, project: str) -> str | None:
        """Set the default environment of the project, None for that of the installation."""
        body = DefaultEnvironmentIn(environment=name)
        segments = ("projects", project, "default-environment")
        return self._connection.fetch(
            DefaultEnvironmentOut, "PUT", *segments, body=body
        ).environment


def _path(project: str) -> tuple[str, str, str]:
    return ("projects", project, "named-environments")
