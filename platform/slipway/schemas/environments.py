"""Named environments on the wire: packages of a project under a name, in numbered versions."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from slipway.schemas.accounts import UserOut
from slipway.schemas.base import (
    SLUG_PATTERN,
    AnswerSchema,
    Digest,
    Line,
    PythonVersion,
    RelativePath,
    RequestSchema,
    Slug,
    Text,
    line_field,
)
from slipway.schemas.workloads import BuildOut

MAX_REQUIREMENTS_CHARACTERS = 1_000_000
# The environment of the installation, where a name of one is asked for.
INSTALLATION = "installation"
# The newest version of an environment, or a version of it: `vision`, `vision@3`.
REFERENCE_PATTERN = rf"^{SLUG_PATTERN}(?:@[1-9][0-9]{{0,8}})?$"
EnvironmentReference = Annotated[Line, line_field(REFERENCE_PATTERN, max_length=60)]
Requirements = Annotated[Text, Field(max_length=MAX_REQUIREMENTS_CHARACTERS)]
BuildSummary = Literal["ready", "building", "failed", "not_built"]


class VersionPackagesIn(RequestSchema):
    """Packages of a version of a named environment.

    `requirements` is the text of a requirements file, of an `environment.yml`, of a
    `conda-lock.yml` or of a list that begins with `@EXPLICIT`. With a `snapshot`, the digest of an
    uploaded folder, its lines may name files there; `requirements_file` is the path of such a file
    in it instead, and without both the files at its top count, as for a job.
    """

    requirements: Requirements | None = None
    snapshot: Digest | None = None
    requirements_file: RelativePath | None = None
    python: PythonVersion | None = None


class NamedEnvironmentIn(VersionPackagesIn):
    """A named environment to create, with the packages of its first version.

    `requirements` is the text of a requirements file, of an `environment.yml`, of a
    `conda-lock.yml` or of a list that begins with `@EXPLICIT`. With a `snapshot`, the digest of an
    uploaded folder, its lines may name files there; `requirements_file` is the path of such a file
    in it instead, and without both the files at its top count, as for a job. `python` is a version
    that a node has, such as `3.12`, by default that of the folder or of the installation; conda
    brings its own.
    """

    name: Slug
    description: Annotated[Text, Field(max_length=2000)] = ""


class NamedEnvironmentEdit(RequestSchema):
    """Changes of a named environment. Its packages change by a new version."""

    description: Annotated[Text, Field(max_length=2000)]


class EnvironmentVersionIn(VersionPackagesIn):
    """Packages of a new version, in the forms of those of a new environment.

    Without `python` it has the Python of the folder or of the latest version.
    """


class DefaultEnvironmentIn(RequestSchema):
    """The name of the default environment of a project, null for that of the installation."""

    environment: Slug | None


class DefaultEnvironmentOut(AnswerSchema):
    """The name of the default environment of a project, null for that of the installation."""

    environment: str | None = None


class NamedEnvironmentOut(AnswerSchema):
    """A named environment. `version` and what follows are those of its latest version.

    `packages` is the number of packages that its requirements name. `build` is `ready` if a node
    has built it for this project. With `is_default` it is that of jobs and notebook servers that
    name no packages. Nothing new runs in it once it is archived. With `is_conda` its packages come
    from a file of conda, and `python` may be empty before the first build.
    """

    name: str
    description: str
    version: int
    python: str
    packages: int
    digest: str
    is_conda: bool = False
    build: BuildSummary
    is_default: bool
    created_by: UserOut
    created_at: datetime
    archived_at: datetime | None = None


class EnvironmentVersionOut(AnswerSchema):
    """A version of a named environment. `digest` is that of its packages.

    With `is_conda` they come from a file of conda, and `python` may be empty before the first
    build.
    """

    reference: str
    number: int
    python: str
    packages: int
    digest: str
    is_conda: bool = False
    build: BuildSummary
    created_by: UserOut
    created_at: datetime


class VulnerabilityOut(AnswerSchema):
    """A known vulnerability of a package. `fixed` are later versions without it.

    `aliases` are its ids in other databases, such as a CVE.
    """

    package: str
    version: str
    id: str
    aliases: list[str] = []
    summary: str = ""
    fixed: list[str] = []
    link: str = ""


class EnvironmentAuditOut(AnswerSchema):
    """Known vulnerabilities of the exact versions of an environment.

    `state` is `checked`, `pending` before the answer about every package, `failed` if the database
    did not answer, or `not_checked` if it is not asked; `reason` says why. `packages` is the number
    of packages with an answer, and `checked_at` the time of the oldest one, at most about a day
    ago while `checked`. `unchecked` is the number of packages of conda, which the database does not
    have.
    """

    state: Literal["checked", "pending", "failed", "not_checked"]
    reason: str = ""
    checked_at: datetime | None = None
    packages: int = 0
    unchecked: int = 0
    vulnerabilities: list[VulnerabilityOut] = []


class EnvironmentVersionDetail(EnvironmentVersionOut):
    """A version with its packages, its build on each node, and its known vulnerabilities.

    `requirements` are the packages of pip, and `document` is a file that makes the same version
    again. `channels` are the addresses of the channels of conda. `locked` are the exact versions
    that its first build resolved, empty before; those of conda are a list that begins with
    `@EXPLICIT`. `requested` are the nodes that were asked to build it and have not finished yet.
    """

    requirements: str
    document: str = ""
    channels: list[str] = []
    locked: str = ""
    builds: list[BuildOut] = []
    requested: list[str] = []
    audit: EnvironmentAuditOut = EnvironmentAuditOut(state="not_checked")
