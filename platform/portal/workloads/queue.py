"""Queue order: the projects' queues, merged by fair share, read only as far as needed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import OuterRef, Q, Subquery

from portal.compute.models import Quota
from portal.compute.resources import Amount, Need
from portal.workloads.fairness import order_key
from portal.workloads.models import Share, Workload, placement_name
from slipway.schemas.workloads import ReasonCode

# Limits of one pass: the number of projects, the depth past workloads that do not fit, and the
# number of rows read at once, which doubles with each read.
MAX_PROJECTS = 256
_DEPTH = 32
_CHUNK = 8
_MAX_CHUNK = 64
CANDIDATE_COLUMNS = (
    "pk",
    "project_id",
    "team_id",
    "epoch",
    "kind",
    "tier_id",
    "nodes",
    "cpu_millis",
    "memory_bytes",
    "gpus",
    "gpu_model",
    "labels",
    "backend",
    "max_lifetime_s",
    "waits_since",
    "reason",
    "project__network",
    "python",
    "pool_id",
    "is_preemptible",
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A queued workload, as far as a pass needs to know it.

    `start_failed` says that its last attempt could not even be started where it was, `was_moved`
    that it was asked to stop and to queue again.
    """

    workload_id: str
    project_id: str
    team_id: str | None
    epoch: int
    kind: str
    tier_id: str
    tasks: int
    need: Need
    lifetime: timedelta | None
    waits_since: datetime
    start_failed: bool = False
    is_preemptible: bool = False
    was_moved: bool = False
    pool_id: str | None = None

    @property
    def total(self) -> Amount:
        """Return the resources of all its tasks together."""
        return self.need.amount.times(self.tasks)


def candidate_of(row: tuple[Any, ...]) -> Candidate:
    """Return a candidate from the columns of a workload."""
    pk, project, team, epoch, kind, tier, tasks, *rest = row
    cpu, memory, gpus, model, labels, backend, seconds, since, reason, network, python, *last = rest
    pool, is_preemptible = last
    if pool is None:
        pairs = tuple(sorted(labels.items())) if labels else ()
        need = Need(Amount(cpu, memory, gpus), model, pairs, backend, network, python)
    else:
        # Its engine has chosen the nodes. Labels and Pythons are of ours.
        reserved_for = placement_name(pk, epoch + 1)
        need = Need(
            Amount(cpu, memory, gpus), model, (), backend, network, reserved_for=reserved_for
        )
    lifetime = timedelta(seconds=seconds) if seconds is not None else None
    failed = reason == ReasonCode.START_FAILED
    return Candidate(
        *(pk, project, team, epoch, kind, tier, tasks, need, lifetime, since, failed),
        is_preemptible=is_preemptible,
        was_moved=reason == ReasonCode.PREEMPTED,
        pool_id=pool,
    )


@dataclass(slots=True)
class QuotaUsage:
    """Queued and running work of a project or team, its limits, and the limits reached."""

    share: Share
    quota: Quota | None
    running: int
    cpu_millis: int
    gpus: int
    fair_millis: int
    full: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, share: Share, quota: Quota | None) -> "QuotaUsage":
        """Open the ledger of a share."""
        return cls(share, quota, share.running, share.cpu_millis, share.gpus, share.fair_millis)

    def key(self, at_s: float) -> float:
        """Return what the fair share sorts by."""
        weight = self.quota.weight if self.quota else 1.0
        return order_key(self.share.score, fair_millis=self.fair_millis, weight=weight, at_s=at_s)

    def over(self, total: Amount) -> set[str]:
        """Return the limits this would go over."""
        if self.quota is None:
            return set()
        return {
            part
            for part, requested in _parts(total).items()
            if requested
            and (limit := getattr(self.quota, part)) is not None
            and getattr(self, part) + requested > limit
        }

    def blocks(self, total: Amount) -> bool:
        """Return True if a limit blocks this.

        The first to reach a limit in a pass blocks the others, so that small workloads do not
        overtake a large one for ever.
        """
        over = self.over(total)
        blocked = bool(over) or any(_parts(total)[part] for part in self.full)
        self.full |= over
        return blocked

    def add(self, total: Amount) -> None:
        """Count one workload more."""
        self.running += 1
        self.cpu_millis += total.cpu_millis
        self.gpus += total.gpus
        self.fair_millis += total.fair_millis


def _parts(total: Amount) -> dict[str, int]:
    return {"running": 1, "cpu_millis": total.cpu_millis, "gpus": total.gpus}


@dataclass(slots=True)
class ProjectQueue:
    """One project's queue, as read so far."""

    project_id: str
    usage: QuotaUsage
    team: QuotaUsage | None
    waiting: list[Candidate]
    pool_id: str | None = None
    with_preemptible: bool = True
    at: int = 0
    skipped: int = 0
    is_loaded: bool = False
    chunk: int = _CHUNK
    key: float = 0.0

    def first(self) -> Candidate | None:
        """Return the next candidate, reading on when there is need and depth left."""
        if self.skipped >= _DEPTH:
            return None
        if self.at >= len(self.waiting) and not self.is_loaded:
            self._load_more()
        return self.waiting[self.at] if self.at < len(self.waiting) else None

    def _load_more(self) -> None:
        begin = len(self.waiting)
        rows = Workload.objects.waiting_in(self.pool_id, with_preemptible=self.with_preemptible)
        rows = rows.filter(project_id=self.project_id)
        workloads = rows.values_list(*CANDIDATE_COLUMNS)[begin : begin + self.chunk]
        self.waiting += map(candidate_of, workloads)
        self.is_loaded = len(self.waiting) - begin < self.chunk
        self.chunk = min(self.chunk * 2, _MAX_CHUNK)

    def skip_first(self) -> None:
        """Leave the first where it is and look behind it."""
        self.at += 1
        self.skipped += 1

    def pop_first(self, total: Amount) -> None:
        """Take the first out, and count it."""
        self.at += 1
        self.count(total)

    def count(self, total: Amount) -> None:
        """Count one workload more, for the project and its team."""
        self.usage.add(total)
        if self.team is not None:
            self.team.add(total)

    def blocks(self, total: Amount) -> bool:
        """Return True if a limit of the project or of its team blocks this."""
        if self.usage.blocks(total):
            return True
        return self.team is not None and self.team.blocks(total)


class Queue:
    """All waiting work, in the order of the fair share: teams among each other, then projects.

    A project without a team counts as its own team. Within a project, priority decides, then age.
    What waits for our own nodes and what waits in a pool are queues of their own.
    """

    def __init__(
        self,
        at_s: float,
        *,
        batch: int,
        pool_id: str | None = None,
        with_preemptible: bool = True,
    ) -> None:
        """Read the queue for a pass that begins now and places at most `batch` workloads."""
        self._at_s = at_s
        self.queues = _lines(batch, pool_id, with_preemptible=with_preemptible)
        self._team_keys: dict[str, float] = {}
        for line in self.queues:
            self._update_key(line)

    def next_queue(self) -> ProjectQueue | None:
        """Return the queue whose head is next, or None if nothing is left."""
        while self.queues:
            line = min(self.queues, key=self._sort_key)
            if line.first() is not None:
                return line
            self.queues.remove(line)
        return None

    def is_over_quota(self, project_id: str, total: Amount) -> bool:
        """Return True if a limit of a waiting project or of its team does not admit this now."""
        line = next((line for line in self.queues if line.project_id == project_id), None)
        if line is None:
            return False
        return bool(line.usage.over(total) or (line.team is not None and line.team.over(total)))

    def count_ordered(self, totals: Iterable[tuple[str, Amount]]) -> None:
        """Count what is promised to projects and does not run yet: ordered of engines, or held."""
        lines = {line.project_id: line for line in self.queues}
        for project_id, total in totals:
            if project_id in lines:
                lines[project_id].count(total)
                self.reprioritize(lines[project_id])

    def reprioritize(self, line: ProjectQueue) -> None:
        """Weigh a line anew after something was taken from it."""
        self._update_key(line)

    def _update_key(self, line: ProjectQueue) -> None:
        line.key = line.usage.key(self._at_s)
        if line.team is not None:
            self._team_keys[line.team.share.pk] = line.team.key(self._at_s)

    def _sort_key(self, line: ProjectQueue) -> tuple[float, float, str]:
        account = line.key if line.team is None else self._team_keys[line.team.share.pk]
        return account, line.key, line.project_id


def _lines(batch: int, pool_id: str | None, *, with_preemptible: bool) -> list[ProjectQueue]:
    """Read the front of each waiting project's queue: five queries, whatever waits behind."""
    waiting = Share.objects.filter(queued__gt=0, project__isnull=False).order_by("score")
    shares = {share.project_id or "": share for share in waiting[:MAX_PROJECTS]}
    if not shares:
        return []
    ahead = max(1, min(_CHUNK, 2 * batch // len(shares)))
    fronts = _fronts(shares, ahead=ahead, pool_id=pool_id, with_preemptible=with_preemptible)
    teams = {front[0].team_id for front in fronts.values() if front[0].team_id}
    team_shares = Share.objects.filter(team__in=teams) if teams else []
    quotas = Quota.objects.filter(Q(project__in=shares) | Q(team__in=teams))
    limits = {quota.project_id or quota.team_id: quota for quota in quotas}
    ledgers = {
        share.team_id: QuotaUsage.of(share, limits.get(share.team_id or ""))
        for share in team_shares
    }
    return [
        ProjectQueue(
            project_id=project_id,
            usage=QuotaUsage.of(share, limits.get(project_id)),
            team=ledgers.get(front[0].team_id) if front[0].team_id else None,
            waiting=front,
            pool_id=pool_id,
            with_preemptible=with_preemptible,
            is_loaded=len(front) < ahead,
        )
        for project_id, share in shares.items()
        if (front := fronts.get(project_id))
    ]


def _fronts(
    projects: Iterable[str], *, ahead: int, pool_id: str | None, with_preemptible: bool
) -> dict[str, list[Candidate]]:
    """Return the first `ahead` candidates of each project, found by one seek each."""
    waiting = Workload.objects.waiting_in(pool_id, with_preemptible=with_preemptible)
    waiting = waiting.filter(project=OuterRef("project"))
    queue = waiting.values("pk")
    places = {f"place_{at}": Subquery(queue[at : at + 1]) for at in range(ahead)}
    shares = Share.objects.filter(project__in=projects).annotate(**places)
    ids = [pk for row in shares.values_list(*places) for pk in row if pk is not None]
    rows = Workload.objects.filter(pk__in=ids).order_by("-priority", "id")
    fronts: dict[str, list[Candidate]] = {}
    for row in rows.values_list(*CANDIDATE_COLUMNS):
        candidate = candidate_of(row)
        fronts.setdefault(candidate.project_id, []).append(candidate)
    return fronts
