"""Wire schemas of people, teams, projects, invitations, tokens, secrets and the audit log."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from slipway.schemas.base import (
    REFUSED,
    AnswerSchema,
    Line,
    Name,
    RequestSchema,
    Slug,
    Text,
    Truth,
    Whole,
)

EMAIL_PATTERN = rf"^[^@\s{REFUSED}]+@[^@\s{REFUSED}]+$"
Email = Annotated[
    Line,
    Field(
        min_length=3,
        max_length=254,
        pattern=EMAIL_PATTERN,
        json_schema_extra={"pattern": EMAIL_PATTERN},
    ),
]


class Role(StrEnum):
    """Roles of members. Each role includes the permissions of the ones before it."""

    VIEWER = "viewer"
    CONTRIBUTOR = "contributor"
    MAINTAINER = "maintainer"
    OWNER = "owner"

    @property
    def rank(self) -> int:
        """Position in the order viewer (0) to owner (3)."""
        return list(Role).index(self)

    def at_least(self, other: "Role") -> bool:
        """Return whether this role includes `other`."""
        return self.rank >= other.rank


class Scope(StrEnum):
    """Permissions of a token. A token has only the scopes it was created with."""

    PROJECTS_READ = "projects:read"
    PROJECTS_WRITE = "projects:write"
    MEMBERS_WRITE = "members:write"
    SECRETS_WRITE = "secrets:write"
    TOKENS_READ = "tokens:read"
    TOKENS_WRITE = "tokens:write"
    AUDIT_READ = "audit:read"
    FILES_READ = "files:read"
    FILES_WRITE = "files:write"
    WORKLOADS_READ = "workloads:read"
    WORKLOADS_WRITE = "workloads:write"
    MODELS_PROMOTE = "models:promote"
    EXPERIMENTS_READ = "experiments:read"
    EXPERIMENTS_WRITE = "experiments:write"
    ADMIN = "admin"


class TokenPreset(StrEnum):
    """Named sets of scopes for the usual purposes of a token."""

    COMMAND_LINE = "command-line"
    MLFLOW = "mlflow"
    READ_ONLY = "read-only"
    CI = "ci"
    EVERYTHING = "everything"


PRESET_SCOPES: dict[TokenPreset, tuple[Scope, ...]] = {
    TokenPreset.COMMAND_LINE: tuple(scope for scope in Scope if scope is not Scope.ADMIN),
    TokenPreset.MLFLOW: (Scope.PROJECTS_READ, Scope.EXPERIMENTS_READ, Scope.EXPERIMENTS_WRITE),
    TokenPreset.READ_ONLY: tuple(scope for scope in Scope if scope.value.endswith(":read")),
    TokenPreset.CI: (
        Scope.PROJECTS_READ,
        Scope.FILES_READ,
        Scope.FILES_WRITE,
        Scope.WORKLOADS_READ,
        Scope.WORKLOADS_WRITE,
        Scope.MODELS_PROMOTE,
        Scope.EXPERIMENTS_READ,
        Scope.EXPERIMENTS_WRITE,
    ),
    TokenPreset.EVERYTHING: tuple(Scope),
}

# Scopes that service accounts can have. They never invite, give roles, make tokens or projects,
# or read or write secrets, whatever their role is and whatever token they use.
SERVICE_SCOPES = frozenset(
    (
        Scope.PROJECTS_READ,
        Scope.AUDIT_READ,
        Scope.FILES_READ,
        Scope.FILES_WRITE,
        Scope.WORKLOADS_READ,
        Scope.WORKLOADS_WRITE,
        Scope.MODELS_PROMOTE,
        Scope.EXPERIMENTS_READ,
        Scope.EXPERIMENTS_WRITE,
    )
)


def scopes_of_preset(preset: TokenPreset, *, administrator: bool) -> list[Scope]:
    """Return the scopes of a preset. Only administrators get `admin`, with `everything`."""
    scopes = PRESET_SCOPES[preset]
    return [scope for scope in scopes if administrator or scope is not Scope.ADMIN]


def preset_of_scopes(scopes: Iterable[str]) -> TokenPreset | None:
    """Return the preset that has exactly these scopes, or None."""
    given = {str(scope) for scope in scopes}
    for preset, members in PRESET_SCOPES.items():
        if given == {scope.value for scope in members}:
            return preset
    return None


# Network access of a project's tasks: the whole network, or only the portal and the gateways.
NetworkRule = Literal["open", "platform"]


class UserOut(AnswerSchema):
    """A person as other members see them."""

    id: str
    email: str
    name: str


class AccountOut(UserOut):
    """A person as an administrator sees them."""

    is_administrator: bool
    is_active: bool
    created_at: datetime
    last_login: datetime | None = None


class TokenOut(AnswerSchema):
    """An API token without its secret. `prefix` is its beginning, to identify it."""

    id: str
    name: str
    prefix: str
    scopes: list[str]
    project: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class TokenCreated(TokenOut):
    """A new token with its secret, which only this response contains."""

    token: str = Field(repr=False)


class TokenIn(RequestSchema):
    """A token to create, with a preset or with scopes.

    `project` (a slug) restricts it. It expires after at most 365 days.
    """

    name: Name
    preset: TokenPreset | None = None
    scopes: list[Scope] = Field(default=[], max_length=len(Scope))
    project: Slug | None = None
    expires_in_days: Whole = Field(default=90, ge=1, le=365)


class WhoAmI(AnswerSchema):
    """The person and, when one was used, the token behind a request."""

    user: UserOut
    is_administrator: bool
    token: TokenOut | None = None


class TeamIn(RequestSchema):
    name: Name
    slug: Slug | None = None


class TeamChange(RequestSchema):
    name: Name | None = None


class TeamOut(AnswerSchema):
    """A team. `role` is the role of the caller."""

    id: str
    slug: str
    name: str
    role: Role | None = None
    created_at: datetime


class ProjectIn(RequestSchema):
    """A project to create, in a team (its slug) or without one."""

    name: Name
    slug: Slug | None = None
    description: Annotated[Text, Field(max_length=2000)] = ""
    team: Slug | None = None


class ProjectChange(RequestSchema):
    """Changes to a project. Only owners may change `network`, the network access of its tasks."""

    name: Name | None = None
    description: Annotated[Text, Field(max_length=2000)] | None = None
    network: NetworkRule | None = None


MOST_README_CHARACTERS = 64_000
MOST_NOTE_CHARACTERS = 20_000


class ReadmeIn(RequestSchema):
    """A README to save, in Markdown. `version` is the one it was edited from, 0 for the first.

    If the project has another version by then, nothing is saved.
    """

    text: Annotated[Text, Field(max_length=MOST_README_CHARACTERS)]
    version: Whole = Field(ge=0, le=2**31 - 2)


class ReadmeOut(AnswerSchema):
    """The README of a project, in Markdown. Version 0 means that there is none yet."""

    text: str = ""
    version: int = 0
    saved_at: datetime | None = None
    saved_by: UserOut | None = None


class NoteIn(RequestSchema):
    """Notes to save, in Markdown. `version` is the one they were edited from, 0 for the first.

    If there is another version by then, nothing is saved.
    """

    text: Annotated[Text, Field(max_length=MOST_NOTE_CHARACTERS)]
    version: Whole = Field(ge=0, le=2**31 - 2)


class NoteOut(AnswerSchema):
    """Notes about an object, in Markdown. Version 0 means that there are none yet."""

    text: str = ""
    version: int = 0
    saved_at: datetime | None = None
    saved_by: UserOut | None = None


class ProjectOut(AnswerSchema):
    """A project. `role` is the role of the caller, and `team` the slug of its team.

    `network` is the network access of its tasks: `open`, or `platform` for the platform alone.
    """

    id: str
    slug: str
    name: str
    description: str
    team: str | None = None
    role: Role | None = None
    network: NetworkRule = "open"
    created_at: datetime
    archived_at: datetime | None = None


class MemberOut(AnswerSchema):
    """A member, and the source of the role: the project itself or its team."""

    user: UserOut
    role: Role
    source: str
    since: datetime


class ServiceAccountState(StrEnum):
    """State of a service account. The tokens and schedules of a disabled one do nothing."""

    ACTIVE = "active"
    DISABLED = "disabled"


ServiceRole = Literal[Role.VIEWER, Role.CONTRIBUTOR, Role.MAINTAINER]
Description = Annotated[Line, Field(max_length=500)]


class ServiceAccountIn(RequestSchema):
    """A service account to create. Its name is used once in a project, even after it is deleted."""

    name: Slug
    role: ServiceRole = Role.CONTRIBUTOR
    description: Description = ""


class ServiceAccountChange(RequestSchema):
    """Changes to a service account. Omitted fields stay as they are."""

    role: ServiceRole | None = None
    description: Description | None = None


class ServiceAccountOut(AnswerSchema):
    """A service account of a project.

    `address` stands where a person has an e-mail address, as in spend; no mail is sent to it.
    `tokens` is the number of its usable tokens.
    """

    id: str
    project: str
    name: str
    address: str
    role: Role
    state: ServiceAccountState
    description: str = ""
    created_by: str
    created_at: datetime
    tokens: int = 0
    last_used_at: datetime | None = None


class ServiceTokenIn(RequestSchema):
    """A token of a service account to create, with a preset or with scopes.

    It opens the account's project alone. It expires after at most 365 days.
    """

    name: Name
    preset: TokenPreset | None = None
    scopes: list[Scope] = Field(default=[], max_length=len(Scope))
    expires_in_days: Whole = Field(default=90, ge=1, le=365)


class ServiceTokenOut(TokenOut):
    """A token of a service account, with the person who has created it."""

    created_by: str | None = None


class ServiceTokenCreated(ServiceTokenOut):
    """A new token of a service account with its secret, which only this response contains."""

    token: str = Field(repr=False)


class MemberChange(RequestSchema):
    role: Role


class InvitationIn(RequestSchema):
    """An invitation for one e-mail address. The link works for `expires_in_days` days."""

    email: Email
    role: Role = Role.CONTRIBUTOR
    expires_in_days: Whole = Field(default=7, ge=1, le=30)


class InvitationOut(AnswerSchema):
    id: str
    email: str
    role: Role
    state: str
    invited_by: str
    created_at: datetime
    expires_at: datetime


class InvitationCreated(InvitationOut):
    """A new invitation with its link, which only this response contains."""

    link: str = Field(repr=False)


class InvitationAccept(RequestSchema):
    token: Annotated[Line, Field(min_length=20, max_length=200)] = Field(repr=False)


class InvitationAccepted(AnswerSchema):
    """Target of the accepted invitation: the slug of a project or of a team."""

    project: str | None = None
    team: str | None = None
    role: Role


class SecretIn(RequestSchema):
    """A secret to write. The value is never shown again."""

    value: Annotated[str, Field(min_length=1, max_length=32_768)] = Field(repr=False)


class SecretOut(AnswerSchema):
    name: str
    created_at: datetime
    updated_at: datetime
    updated_by: str


class AccountChange(RequestSchema):
    """Suspend or promote a person. `hand_over_to` becomes owner of what only this person owns."""

    is_active: Truth | None = None
    is_administrator: Truth | None = None
    hand_over_to: Annotated[Line, Field(max_length=32)] | None = None


class AuditOut(AnswerSchema):
    """One audit event: actor, action, object, client address, values before and after."""

    id: str
    at: datetime
    actor: str
    actor_id: str | None = None
    token_id: str | None = None
    ip: str | None = None
    request_id: str
    verb: str
    project: str | None = None
    team: str | None = None
    target_kind: str
    target_id: str
    target_label: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
