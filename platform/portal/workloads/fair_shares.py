"""Use of each project compared with its fair share: which are above it, and which below.

The fair share divides the use of all that run or wait by their weights: first among accounts (a
team, or a project without one), then among the projects of a team. Use is that of the queue's
order, see `fairness`.
"""

from dataclasses import dataclass

from django.db.models import Q

from portal.accounts.models import Project
from portal.compute.models import Quota
from portal.workloads.fairness import order_key
from portal.workloads.models import Share


@dataclass(frozen=True, slots=True)
class _Use:
    """Recent use of an account or project, and its weight."""

    use: float
    weight: float

    @property
    def key(self) -> float:
        return self.use / self.weight


class ShareStandings:
    """Standings of all projects that run or wait, as they were when it was created."""

    def __init__(self, at_s: float) -> None:
        shares = list(Share.objects.filter(Q(queued__gt=0) | Q(running__gt=0)))
        projects = {share.project_id for share in shares if share.project_id}
        teams = dict(Project.objects.filter(pk__in=projects).values_list("pk", "team_id"))
        weights = {quota.project_id or quota.team_id: quota.weight for quota in Quota.objects.all()}
        self._groups: dict[str, dict[str, _Use]] = {"": {}}
        for share in shares:
            owner = share.project_id or share.team_id or ""
            use = order_key(share.score, fair_millis=share.fair_millis, weight=1.0, at_s=at_s)
            team = teams.get(share.project_id or "")
            self._groups.setdefault(team or "", {})[owner] = _Use(use, weights.get(owner, 1.0))

    def may_move(
        self, *, project: str, team: str | None, of_project: str, of_team: str | None
    ) -> bool:
        """Return False if a project above its share would move work of one below its share.

        Within a team its projects are compared, else the two accounts.
        """
        if project == of_project:
            return True
        if team is not None and team == of_team:
            group, own, other = team, project, of_project
        else:
            group, own, other = "", team or project, of_team or of_project
        return not (self._difference(group, own) > 0 > self._difference(group, other))

    def is_below(self, project: str, team: str | None) -> bool:
        """Return True if the account of a project has used less than its fair share."""
        return self._difference("", team or project) < 0

    def _difference(self, group: str, owner: str) -> float:
        """Return by how much an owner is above (or, negative, below) its share in its group."""
        uses = self._groups.get(group, {})
        own = uses.get(owner)
        if own is None:
            return 0.0
        total = sum(use.use for use in uses.values()) / sum(use.weight for use in uses.values())
        # Equal uses must not differ by rounding.
        return 0.0 if abs(own.key - total) <= 1e-9 * total else own.key - total
