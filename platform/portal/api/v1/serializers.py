"""Shared serializers and pagination."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from django.db.models import Model
from django.http import HttpResponse
from ninja import Query
from pydantic import BaseModel, Field

from portal.accounts.models import (
    ApiToken,
    AuditEvent,
    Invitation,
    Membership,
    ObjectNote,
    Project,
    ProjectReadme,
    ProjectSecret,
    Team,
    User,
)
from portal.core.pagination import DEFAULT_LIMIT, MAX_LIMIT, Page
from slipway.schemas.accounts import (
    AuditOut,
    InvitationOut,
    MemberOut,
    NoteOut,
    ProjectOut,
    ReadmeOut,
    Role,
    SecretOut,
    TeamOut,
    TokenOut,
    UserOut,
)
from slipway.schemas.base import NEXT_CURSOR, Line, PageOf

M = TypeVar("M", bound=Model)
Out = TypeVar("Out", bound=BaseModel)


class PageQuery(BaseModel):
    """A page of a list. Pass `next_cursor` as `cursor` to get the next one."""

    cursor: Annotated[Line, Field(max_length=300)] | None = None
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)


class SearchQuery(PageQuery):
    """A page of items whose names contain `q`."""

    q: Annotated[Line, Field(max_length=100)] = ""


class ListQuery(BaseModel):
    """A part of a bare list. Pass the header `X-Slipway-Next-Cursor` as `cursor`."""

    cursor: Annotated[Line, Field(max_length=300)] | None = None
    limit: int = Field(default=MAX_LIMIT, ge=1, le=MAX_LIMIT)


PageParameters = Query[PageQuery]
ListParameters = Query[ListQuery]
SearchParameters = Query[SearchQuery]


def page_of(page: Page[M], shape: Callable[[M], Out]) -> PageOf[Any]:
    """Serialize a page of rows."""
    return PageOf[Any](items=[shape(row) for row in page.items], next_cursor=page.next_cursor)


def announce_rest(response: HttpResponse, page: Page[M]) -> Page[M]:
    """Set the header with the cursor of the next part of a bare list. Returns the page."""
    if page.next_cursor is not None:
        response.headers[NEXT_CURSOR] = page.next_cursor
    return page


def user_out(user: User) -> UserOut:
    return UserOut(id=user.pk, email=user.email, name=user.display_name)


def team_out(team: Team, role: Role | None) -> TeamOut:
    return TeamOut(
        id=team.pk, slug=team.slug, name=team.name, role=role, created_at=team.created_at
    )


def project_out(project: Project, role: Role | None) -> ProjectOut:
    return ProjectOut(
        id=project.pk,
        slug=project.slug,
        name=project.name,
        description=project.description,
        team=project.team.slug if project.team else None,
        role=role,
        network=project.network_rule,
        created_at=project.created_at,
        archived_at=project.archived_at,
    )


def note_out(note: ObjectNote | None) -> NoteOut:
    if note is None:
        return NoteOut()
    return NoteOut(
        text=note.text,
        version=note.version,
        saved_at=note.saved_at,
        saved_by=user_out(note.saved_by),
    )


def readme_out(readme: ProjectReadme | None) -> ReadmeOut:
    if readme is None:
        return ReadmeOut()
    return ReadmeOut(
        text=readme.text,
        version=readme.version,
        saved_at=readme.saved_at,
        saved_by=user_out(readme.saved_by),
    )


def member_out(member: Membership) -> MemberOut:
    return MemberOut(
        user=user_out(member.user),
        role=Role(member.role),
        source="team" if member.team_id else "project",
        since=member.created_at,
    )


def invitation_out(invitation: Invitation) -> InvitationOut:
    return InvitationOut(
        id=invitation.pk,
        email=invitation.email,
        role=Role(invitation.role),
        state=invitation.state,
        invited_by=invitation.invited_by.email,
        created_at=invitation.created_at,
        expires_at=invitation.expires_at,
    )


def token_out(token: ApiToken) -> TokenOut:
    return TokenOut(
        id=token.pk,
        name=token.name,
        prefix=token.prefix,
        scopes=list(token.scopes),
        project=token.project.slug if token.project else None,
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        revoked_at=token.revoked_at,
    )


def secret_out(secret: ProjectSecret) -> SecretOut:
    return SecretOut(
        name=secret.name,
        created_at=secret.created_at,
        updated_at=secret.updated_at,
        updated_by=secret.updated_by.email,
    )


def audit_out(event: AuditEvent) -> AuditOut:
    return AuditOut(
        id=event.pk,
        at=event.at,
        actor=event.actor,
        actor_id=event.actor_id or None,
        token_id=event.token_id or None,
        ip=event.ip,
        request_id=event.request_id,
        verb=event.verb,
        project=event.project_slug or None,
        team=event.team_slug or None,
        target_kind=event.target_kind,
        target_id=event.target_id,
        target_label=event.target_label,
        before=event.before,
        after=event.after,
    )
