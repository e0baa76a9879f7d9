"""Authorization of streams of live events: the listener, and whether access still holds."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hmac import compare_digest

from django.contrib.sessions.models import Session
from django.db.models import Q

from portal.accounts.models import Membership, Project, Team, User
from portal.accounts.models.tenancy import Group
from portal.core import clock
from slipway.schemas.accounts import Role

# Topic of installation-wide events, for administrators.
INSTALLATION = "installation"


@dataclass(frozen=True)
class PageListener:
    """One page's right to listen: a person's session, and the project or team of the page.

    `proof` is the hash that ties the session to the person's password.
    """

    user_id: str
    session_key: str
    proof: str
    project_id: str = ""
    team_id: str = ""
    topics: frozenset[str] = field(default=frozenset(), compare=False)


def listener_of(user: User, session_key: str, group: Group | None = None) -> PageListener:
    """Describe a page that has just been let in."""
    topics = {user.pk} | ({INSTALLATION} if user.is_administrator else set())
    if group is not None:
        topics.add(group.pk)
    if isinstance(group, Project) and group.team_id:
        topics.add(group.team_id)
    return PageListener(
        user_id=user.pk,
        session_key=session_key,
        proof=user.get_session_auth_hash(),
        project_id=group.pk if isinstance(group, Project) else "",
        team_id=group.pk if isinstance(group, Team) else "",
        topics=frozenset(topics),
    )


def authorized_listeners(listeners: Iterable[PageListener]) -> set[PageListener]:
    """Return those who may listen on, as the gates of their pages would say now.

    Asks a fixed number of queries, however many listen.
    """
    listeners = list(listeners)
    people = {user.pk: user for user in _active_users(listeners)}
    sessions = _sessions(listeners)
    roles = _Roles(listeners)
    return {
        listener
        for listener in listeners
        if listener.session_key in sessions
        and listener.user_id in people
        and compare_digest(people[listener.user_id].get_session_auth_hash(), listener.proof)
        and roles.allows(listener)
    }


def _active_users(listeners: list[PageListener]) -> Iterable[User]:
    ids = {listener.user_id for listener in listeners}
    return User.objects.filter(pk__in=ids, is_active=True)


def _sessions(listeners: list[PageListener]) -> set[str]:
    keys = {listener.session_key for listener in listeners}
    alive = Session.objects.filter(session_key__in=keys, expire_date__gt=clock.now())
    return set(alive.values_list("session_key", flat=True))


class _Roles:
    """The roles of all listeners in all their projects and teams, fetched at once."""

    def __init__(self, listeners: list[PageListener]) -> None:
        project_ids = {listener.project_id for listener in listeners if listener.project_id}
        self.projects = {p.pk: p for p in Project.objects.filter(pk__in=project_ids)}
        teams = {listener.team_id for listener in listeners if listener.team_id}
        teams |= {p.team_id for p in self.projects.values() if p.team_id}
        held = Membership.objects.filter(user__in={listener.user_id for listener in listeners})
        held = held.filter(Q(project__in=self.projects) | Q(team__in=teams))
        self.held: dict[tuple[str, str], Role] = {
            (user, project or team): Role(role)
            for user, project, team, role in held.values_list(
                "user_id", "project_id", "team_id", "role"
            )
        }

    def allows(self, listener: PageListener) -> bool:
        """Return whether the listener may still open the page."""
        if listener.team_id:
            return (listener.user_id, listener.team_id) in self.held
        if not listener.project_id:
            return True
        project = self.projects.get(listener.project_id)
        if project is None:
            return False
        groups = (project.pk, project.team_id or "")
        roles = [self.held.get((listener.user_id, group)) for group in groups]
        return Role.OWNER in roles if project.archived_at else any(roles)
