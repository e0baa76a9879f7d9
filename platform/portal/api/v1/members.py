"""Members and invitations of projects and teams."""

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import (
    ProjectRole,
    SignedIn,
    TeamRole,
    gated_project,
    gated_role,
    gated_team,
)
from portal.accounts.models import Invitation, Membership, Project
from portal.accounts.models.tenancy import Group
from portal.accounts.principal import require_principal
from portal.accounts.services import invitations, members
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, PageQuery, invitation_out, member_out, page_of
from portal.core.pagination import paginate
from slipway.schemas.accounts import (
    InvitationAccept,
    InvitationAccepted,
    InvitationCreated,
    InvitationIn,
    InvitationOut,
    MemberChange,
    MemberOut,
    Role,
    Scope,
)
from slipway.schemas.base import PageOf

router = Router(tags=["Members"])
_READ = Scope.PROJECTS_READ
_WRITE = Scope.MEMBERS_WRITE


def _members(group: Group, page: PageQuery) -> PageOf[MemberOut]:
    reaching = (
        Membership.objects.reaching(group)
        if isinstance(group, Project)
        else Membership.objects.in_group(group)
    )
    people = reaching.people().select_related("user")
    members_page = paginate(people, cursor=page.cursor, limit=page.limit)
    return page_of(members_page, member_out)


def _change(request: HttpRequest, group: Group, user_id: str, role: Role) -> MemberOut:
    changed = members.set_role(
        group=group,
        user_id=user_id,
        role=role,
        by=require_principal(request).user,
        by_role=gated_role(request),
    )
    return member_out(changed)


def _remove(request: HttpRequest, group: Group, user_id: str) -> Status[None]:
    members.remove_member(
        group=group,
        user_id=user_id,
        by=require_principal(request).user,
        by_role=gated_role(request),
    )
    return Status(204, None)


def _invitations(group: Group, page: PageQuery) -> PageOf[InvitationOut]:
    invitations_queryset = Invitation.objects.of_group(group).select_related("invited_by")
    return page_of(
        paginate(invitations_queryset, cursor=page.cursor, limit=page.limit), invitation_out
    )


def _invite(request: HttpRequest, group: Group, payload: InvitationIn) -> Status[InvitationCreated]:
    made = invitations.invite(
        group=group,
        by=require_principal(request).user,
        by_role=gated_role(request),
        email=payload.email,
        role=payload.role,
        expires_in_days=payload.expires_in_days,
    )
    shown = invitation_out(made.invitation).model_dump()
    return Status(201, InvitationCreated(**shown, link=made.link))


@router.get(
    "/projects/{project}/members",
    auth=gate(ProjectRole(Role.VIEWER, _READ)),
    response=PageOf[MemberOut],
)
def list_project_members(
    request: HttpRequest, project: str, page: PageParameters
) -> PageOf[MemberOut]:
    """List the members of a project, direct or through its team."""
    return _members(gated_project(request), page)


@router.patch(
    "/projects/{project}/members/{user_id}",
    auth=gate(ProjectRole(Role.MAINTAINER, _WRITE)),
    response=MemberOut,
)
def update_project_member(
    request: HttpRequest, project: str, user_id: str, payload: MemberChange
) -> MemberOut:
    """Change the role of a direct member."""
    return _change(request, gated_project(request), user_id, payload.role)


@router.delete(
    "/projects/{project}/members/{user_id}",
    auth=gate(ProjectRole(Role.VIEWER, _WRITE)),
    response={204: None},
)
def remove_project_member(request: HttpRequest, project: str, user_id: str) -> Status[None]:
    """Remove a direct member. You may remove yourself."""
    return _remove(request, gated_project(request), user_id)


@router.get(
    "/projects/{project}/invitations",
    auth=gate(ProjectRole(Role.MAINTAINER, _READ)),
    response=PageOf[InvitationOut],
)
def list_project_invitations(
    request: HttpRequest, project: str, page: PageParameters
) -> PageOf[InvitationOut]:
    """List the invitations to the project."""
    return _invitations(gated_project(request), page)


@router.post(
    "/projects/{project}/invitations",
    auth=gate(ProjectRole(Role.MAINTAINER, _WRITE)),
    response={201: InvitationCreated},
)
def create_project_invitation(
    request: HttpRequest, project: str, payload: InvitationIn
) -> Status[InvitationCreated]:
    """Invite an e-mail address. Only this response contains the link."""
    return _invite(request, gated_project(request), payload)


@router.delete(
    "/projects/{project}/invitations/{invitation_id}",
    auth=gate(ProjectRole(Role.MAINTAINER, _WRITE)),
    response={204: None},
)
def revoke_project_invitation(
    request: HttpRequest, project: str, invitation_id: str
) -> Status[None]:
    """Revoke an open invitation."""
    invitations.revoke(group=gated_project(request), invitation_id=invitation_id)
    return Status(204, None)


@router.get(
    "/teams/{team}/members", auth=gate(TeamRole(Role.VIEWER, _READ)), response=PageOf[MemberOut]
)
def list_team_members(request: HttpRequest, team: str, page: PageParameters) -> PageOf[MemberOut]:
    """List the members of the team."""
    return _members(gated_team(request), page)


@router.patch(
    "/teams/{team}/members/{user_id}",
    auth=gate(TeamRole(Role.MAINTAINER, _WRITE)),
    response=MemberOut,
)
def update_team_member(
    request: HttpRequest, team: str, user_id: str, payload: MemberChange
) -> MemberOut:
    """Change the role of a member."""
    return _change(request, gated_team(request), user_id, payload.role)


@router.delete(
    "/teams/{team}/members/{user_id}",
    auth=gate(TeamRole(Role.VIEWER, _WRITE)),
    response={204: None},
)
def remove_team_member(request: HttpRequest, team: str, user_id: str) -> Status[None]:
    """Remove a member. You may remove yourself."""
    return _remove(request, gated_team(request), user_id)


@router.get(
    "/teams/{team}/invitations",
    auth=gate(TeamRole(Role.MAINTAINER, _READ)),
    response=PageOf[InvitationOut],
)
def list_team_invitations(
    request: HttpRequest, team: str, page: PageParameters
) -> PageOf[InvitationOut]:
    """List the invitations to the team."""
    return _invitations(gated_team(request), page)


@router.post(
    "/teams/{team}/invitations",
    auth=gate(TeamRole(Role.MAINTAINER, _WRITE)),
    response={201: InvitationCreated},
)
def create_team_invitation(
    request: HttpRequest, team: str, payload: InvitationIn
) -> Status[InvitationCreated]:
    """Invite an e-mail address. Only this response contains the link."""
    return _invite(request, gated_team(request), payload)


@router.delete(
    "/teams/{team}/invitations/{invitation_id}",
    auth=gate(TeamRole(Role.MAINTAINER, _WRITE)),
    response={204: None},
)
def revoke_team_invitation(request: HttpRequest, team: str, invitation_id: str) -> Status[None]:
    """Revoke an open invitation."""
    invitations.revoke(group=gated_team(request), invitation_id=invitation_id)
    return Status(204, None)


@router.post(
    "/invitations/accept",
    auth=gate(SignedIn(Scope.PROJECTS_WRITE)),
    response=InvitationAccepted,
)
def accept_invitation(request: HttpRequest, payload: InvitationAccept) -> InvitationAccepted:
    """Accept an invitation to your address."""
    accepted = invitations.accept(secret=payload.token, by=require_principal(request).user)
    return InvitationAccepted(
        project=accepted.project.slug if accepted.project else None,
        team=accepted.team.slug if accepted.team else None,
        role=Role(accepted.role),
    )
