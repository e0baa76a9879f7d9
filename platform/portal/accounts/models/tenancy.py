"""Teams, projects (the tenant) and their memberships."""

from collections.abc import Iterable
from typing import ClassVar, cast, get_args

from django.db import models
from django.db.models import Q

from portal.accounts.models.people import User
from portal.core.models import IdField, Row
from slipway.schemas.accounts import NetworkRule, Role

ROLE_CHOICES = [(role.value, role.value) for role in Role]


class TeamQuerySet(models.QuerySet["Team"]):
    """Queryset of teams."""

    def visible_to(self, user: User) -> "TeamQuerySet":
        """Teams the person belongs to."""
        return self.filter(
            pk__in=Membership.objects.filter(user=user, team__isnull=False).values("team")
        )

    def matching(self, text: str) -> "TeamQuerySet":
        """Return teams whose name or slug contains `text`, or all if it is empty."""
        return self.filter(Q(name__icontains=text) | Q(slug__icontains=text)) if text else self


class Team(Row):
    """A group of people that shares projects. A role in the team applies to all its projects."""

    id = IdField("team")
    slug = models.CharField(max_length=48, unique=True)
    name = models.CharField(max_length=100)

    objects: ClassVar[TeamQuerySet] = TeamQuerySet.as_manager()  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.name


class ProjectQuerySet(models.QuerySet["Project"]):
    """Queryset of projects."""

    def visible_to(self, user: User) -> "ProjectQuerySet":
        """Projects the person belongs to, directly or through the project's team."""
        memberships = Membership.objects.filter(user=user)
        return self.filter(
            Q(pk__in=memberships.filter(project__isnull=False).values("project"))
            | Q(team__in=memberships.filter(team__isnull=False).values("team"))
        )

    def live(self) -> "ProjectQuerySet":
        """Projects that are not archived."""
        return self.filter(archived_at__isnull=True)

    def archived_of(self, user: User) -> "ProjectQuerySet":
        """Archived projects the person owns, directly or through the team."""
        owned = Membership.objects.filter(user=user, role=Role.OWNER)
        return self.filter(archived_at__isnull=False).filter(
            Q(pk__in=owned.filter(project__isnull=False).values("project"))
            | Q(team__in=owned.filter(team__isnull=False).values("team"))
        )

    def matching(self, text: str) -> "ProjectQuerySet":
        """Return projects whose name or slug contains `text`, or all if it is empty."""
        return self.filter(Q(name__icontains=text) | Q(slug__icontains=text)) if text else self


class Project(Row):
    """The tenant: everything a person creates belongs to exactly one project.

    `network` is the network access of its tasks: the whole network, or the platform alone.
    """

    id = IdField("prj")
    slug = models.CharField(max_length=48, unique=True)
    name = models.CharField(max_length=100)
    description = models.CharField(max_length=2000, blank=True)
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.PROTECT, related_name="projects"
    )
    network = models.CharField(max_length=16, default="open", db_default="open")
    archived_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[ProjectQuerySet] = ProjectQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(network__in=get_args(NetworkRule)), name="project_known_network"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def network_rule(self) -> NetworkRule:
        """The network access of the project's tasks."""
        return cast("NetworkRule", self.network)


class MembershipQuerySet(models.QuerySet["Membership"]):
    """Queryset of memberships."""

    def in_group(self, group: "Group") -> "MembershipQuerySet":
        """Memberships held in exactly this team or project (not inherited ones)."""
        return self.filter(team=group) if isinstance(group, Team) else self.filter(project=group)

    def reaching(self, project: Project) -> "MembershipQuerySet":
        """Memberships that apply to a project: its own and its team's."""
        own = Q(project=project)
        return self.filter(own | Q(team=project.team_id) if project.team_id else own)

    def people(self) -> "MembershipQuerySet":
        """Memberships of people. Service accounts are listed on their own."""
        return self.filter(user__is_service_account=False)

    def matching(self, text: str) -> "MembershipQuerySet":
        """Return memberships of people whose name or e-mail contains `text`, or all if empty."""
        if not text:
            return self
        return self.filter(Q(user__name__icontains=text) | Q(user__email__icontains=text))

    def owners(self) -> "MembershipQuerySet":
        """Memberships of active owners."""
        return self.people().filter(role=Role.OWNER, user__is_active=True)


class Membership(Row):
    """A person's role in one team or in one project."""

    id = IdField("mbr")
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="memberships")
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.CASCADE, related_name="memberships"
    )
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="memberships"
    )
    role = models.CharField(max_length=16, choices=ROLE_CHOICES)

    objects: ClassVar[MembershipQuerySet] = MembershipQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(team__isnull=True) ^ Q(project__isnull=True),
                name="membership_team_or_project",
            ),
            models.CheckConstraint(
                condition=Q(role__in=[role.value for role in Role]), name="membership_known_role"
            ),
            models.UniqueConstraint(
                fields=["user", "team"],
                condition=Q(team__isnull=False),
                name="membership_once_a_team",
            ),
            models.UniqueConstraint(
                fields=["user", "project"],
                condition=Q(project__isnull=False),
                name="membership_once_a_project",
            ),
        ]

    @property
    def group(self) -> "Group":
        """The team or project the role is held in."""
        group = self.project or self.team
        assert group is not None  # noqa: S101  (a check constraint ensures it)
        return group


Group = Team | Project


def role_in(user: User, group: Group) -> Role | None:
    """Return the person's role in a team, or in a project the higher of direct and team role."""
    if isinstance(group, Team):
        memberships = Membership.objects.in_group(group)
    else:
        memberships = Membership.objects.reaching(group)
    roles = [Role(role) for role in memberships.filter(user=user).values_list("role", flat=True)]
    return max(roles, key=lambda role: role.rank, default=None)


def team_roles_of(user: User) -> dict[str, Role]:
    """Return the person's role in each of their teams, by the team's id."""
    memberships = Membership.objects.filter(user=user, team__isnull=False)
    return {str(team): Role(role) for team, role in memberships.values_list("team_id", "role")}


def roles_in(user: User, projects: Iterable[Project]) -> dict[str, Role]:
    """Return the person's role in each of `projects`, by the project's id, in one query."""
    projects = list(projects)
    memberships = Membership.objects.filter(
        Q(project__in=[project.pk for project in projects]) | Q(team__isnull=False), user=user
    )
    direct: dict[str, Role] = {}
    through_team: dict[str, Role] = {}
    for project_id, team_id, role in memberships.values_list("project_id", "team_id", "role"):
        if team_id:
            through_team[str(team_id)] = Role(role)
        else:
            direct[str(project_id)] = Role(role)
    roles: dict[str, Role] = {}
    for project in projects:
        held = [direct.get(project.pk), through_team.get(project.team_id or "")]
        items = [role for role in held if role is not None]
        if items:
            roles[project.pk] = max(items, key=lambda role: role.rank)
    return roles
