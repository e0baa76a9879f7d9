"""Explanations of a workload's state for one person: a sentence, with numbers.

Names of things that person may not see never appear: "another project's notebook" is all that is
said of those.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property

from django.db.models import F

from portal.accounts.models import Project, User
from portal.compute.engines import engine_label
from portal.compute.models import Node, NodeGroup, Pool, Quota
from portal.compute.resources import Amount, amount_text, count_noun, cpus_text
from portal.compute.services.pool_helpers import absence_reason
from portal.core import clock
from portal.core.problems import problem_of
from portal.workloads.fair_shares import ShareStandings
from portal.workloads.feasibility import infeasible_reason, is_gang_without_network
from portal.workloads.gangs import ranks_apart_text
from portal.workloads.growth_reasons import growth_reason
from portal.workloads.kept_tasks import kept_text
from portal.workloads.models import Allocation, Lease, Preemption, Share, Workload
from portal.workloads.placement import Capacity, FreeCapacity, Site, missing_part
from portal.workloads.ports import kind_of
from portal.workloads.preemption import unmoved_reason
from portal.workloads.scheduling import projects_of_groups, read_sites
from portal.workloads.silence import silence_text
from slipway.schemas.truncation import join_names
from slipway.schemas.workloads import ReasonCode, WorkloadState

MAX_POSITION = 1000
_NAMED = 3


def pool_reason(workload: Workload, pool: Pool) -> str:
    """Return why a workload in a pool waits: in the engine's own words, where it has spoken."""
    engine = engine_label(pool.engine)
    if not pool.is_open or pool.removed_at is not None:
        return f"an administrator has closed pool {pool.name}."
    if pool.problem:
        return f"{pool.problem.rstrip('.')}. Slipway keeps asking."
    if absence := absence_reason(pool, workload.submitted_by):
        return absence
    allocation = Allocation.objects.open().filter(workload=workload).first()
    if allocation is None:
        if Allocation.objects.open().filter(pool=pool).count() < pool.most_requests:
            return f"it is about to be submitted to pool {pool.name}."
        requests = count_noun(pool.most_requests, "request")
        return f"pool {pool.name} takes {requests} at once, and others are ahead."
    if not allocation.handle:
        cause = f": {allocation.detail.rstrip('.')}" if allocation.detail else ""
        return f"it is being submitted to pool {pool.name}{cause}."
    handle = allocation.shown_handle
    if allocation.detail:
        return f"{engine} says about {handle}: {allocation.detail.rstrip('.')}."
    return f"{engine} starts {handle} in pool {pool.name}."


def position_of(workload: Workload) -> int | None:
    """Return the position in its project's queue, from 1. None if not queued or far behind."""
    if workload.status != WorkloadState.QUEUED:
        return None
    ahead = len(Workload.objects.ahead_of(workload).values_list("pk", flat=True)[:MAX_POSITION])
    return ahead + 1 if ahead < MAX_POSITION else None


class Explainer:
    """Explains workloads to one person. What several explanations share is read once.

    Use one for one answer, because what it has read grows old.
    """

    def __init__(self, viewer: User) -> None:
        self._viewer = viewer

    def explain(self, workload: Workload) -> str:
        """Return the sentence."""
        state = workload.status
        if workload.is_kept:
            return kept_text(workload, self._viewer)
        if state == WorkloadState.SUBMITTED:
            return f"Held back: {workload.hold or 'it is being admitted.'}"
        if state == WorkloadState.ADMITTED:
            return "Admitted: about to be queued."
        if state == WorkloadState.QUEUED:
            return f"Waiting: {self._waiting_reason(workload)}{self._moved_note(workload)}"
        if state == WorkloadState.STOPPING:
            return f"Stopping: {self._stopping_reason(workload)}"
        if state in (WorkloadState.PLACED, WorkloadState.STARTING, WorkloadState.RUNNING):
            return self._location(workload)
        if state == WorkloadState.SUCCEEDED:
            return f"{workload.reason_text} {ranks_apart_text(workload)}".strip()
        return workload.reason_text

    def _location(self, workload: Workload) -> str:
        leases = list(Lease.objects.of_epoch(workload).open().select_related("node"))
        nodes = sorted({lease.node.name for lease in leases})
        verb = "Running" if workload.status == WorkloadState.RUNNING else "Starting"
        if not nodes:  # its leases were just closed, and the next pass has not run yet
            return f"{verb}: its node released it; Slipway is deciding whether to restart it."
        where = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {join_names(nodes, 10)}"
        quiet = sorted({lease.node.name for lease in leases if lease.node.is_quiet()})
        if quiet:
            seen = min(filter(None, (lease.node.last_seen_at for lease in leases)), default=None)
            return f"{verb} on {where}, but node {quiet[0]} {_last_heartbeat_text(seen)}."
        # A task without an address is the one that the others of its gang wait for.
        late_first = sorted(leases, key=lambda lease: (bool(lease.address), lease.index))
        doing = next((lease.message for lease in late_first if lease.message), "")
        steps = [lease.step for lease in leases if lease.step is not None]
        if workload.status == WorkloadState.RUNNING:
            apart = ranks_apart_text(workload)
            running = f"Running on {where}" + (f", at step {min(steps)}." if steps else ".")
            return " ".join(filter(None, (running, silence_text(workload), apart)))
        return f"Starting on {where}" + (f": {doing.rstrip('.')}." if doing else ".")

    def _waiting_reason(self, workload: Workload) -> str:
        if workload.pool is not None:
            return self._by_quota(workload) or pool_reason(workload, workload.pool)
        return (
            self._by_scheduler
            or self._by_network(workload)
            or self._by_quota(workload)
            or self._by_moves(workload)
            or self._by_growth(workload)
            or self._by_nodes(workload)
            or self._by_holds(workload)
            or self._with_moves(workload, self._by_capacity(workload))
            or self._by_queue_position(workload)
        )

    @cached_property
    def _by_scheduler(self) -> str:
        problem = problem_of("scheduler")
        return problem[:1].lower() + problem[1:]

    def _by_network(self, workload: Workload) -> str:
        if not is_gang_without_network(workload.need, workload.nodes):
            return ""
        return (
            f"the network rule of project {workload.project.slug} is now platform, but tasks on "
            "several nodes need the network to reach each other. An owner can set the rule to "
            "open in the project's settings."
        )

    def _by_quota(self, workload: Workload) -> str:
        total = workload.amount.times(workload.nodes)
        owners = [(f"project {workload.project.slug}", {"project_id": workload.project_id})]
        if workload.team_id and workload.team is not None:
            owners.append((f"team {workload.team.slug}", {"team_id": workload.team_id}))
        for owner, key in owners:
            quota = Quota.objects.filter(**key).first()
            share = Share.objects.filter(**key).first()
            if quota is not None and share is not None:
                over = _over(quota, share, total)
                if over:
                    return f"the {owner} {over}."
        return ""

    def move_sentence(self, preemption: Preemption) -> str:
        """Return for which workload another one was moved, by name if the person may see it."""
        return f"Moved for {self.name_of(preemption.beneficiary)}."

    def may_see(self, workload: Workload) -> bool:
        """Return True if the person may know which workload this is."""
        return workload.project_id in self._visible

    def _moved(self, workload: Workload) -> Preemption | None:
        """Return the move that ended the latest attempt, if that is how it ended."""
        if not workload.is_preemptible or workload.reason != ReasonCode.PREEMPTED:
            return None
        moves = Preemption.objects.filter(workload=workload, attempt=workload.epoch)
        return moves.select_related("beneficiary").first()

    def _stopping_reason(self, workload: Workload) -> str:
        move = self._moved(workload)
        if move is None:
            return workload.reason_text
        return f"{self.move_sentence(move)} It saves, stops, and keeps its place in the queue."

    def _moved_note(self, workload: Workload) -> str:
        move = self._moved(workload)
        if move is None:
            return ""
        name = self.name_of(move.beneficiary)
        return (
            f" It was moved for {name} at {move.created_at:%H:%M} UTC and resumes where it saved."
        )

    def _by_moves(self, workload: Workload) -> str:
        """Name the workloads that are moved for this one and have not stopped yet."""
        if workload.held_since is None:
            return ""
        moves = Preemption.objects.filter(
            beneficiary=workload,
            created_at__gte=workload.held_since,
            workload__state=WorkloadState.STOPPING,
            workload__epoch=F("attempt"),
        )
        victims = [move.workload for move in moves.select_related("workload").order_by("pk")]
        if not victims:
            return "what was moved for it has stopped; it starts within seconds."
        names = [self.name_of(victim, "preemptible") for victim in victims[:_NAMED]]
        if len(victims) > _NAMED:
            names.append(f"{len(victims) - _NAMED} more")
        verb = "has saved and stopped" if len(victims) == 1 else "have saved and stopped"
        return f"it waits until {_join_phrases(names)} {verb}."

    def _with_moves(self, workload: Workload, reason: str) -> str:
        """Add why no preemptible work is moved, if some runs."""
        if not reason or not self._preemptible:
            return reason
        return f"{reason} {unmoved_reason(workload, self._preemptible, self._standings)}".rstrip()

    @cached_property
    def _preemptible(self) -> list[Workload]:
        return list(Workload.objects.preemptible().order_by("pk")[:MAX_POSITION])

    @cached_property
    def _standings(self) -> ShareStandings:
        return ShareStandings(clock.now().timestamp())

    def _by_holds(self, workload: Workload) -> str:
        """Say so if it would fit, were capacity not held for work for which others are moved."""
        holders = [held for held in self._holders_of_capacity if held.pk != workload.pk]
        need, project = workload.need, workload.project_id
        room = Capacity(self._sites)
        if not holders or room.count_of(need, project=project) < workload.nodes:
            return ""
        for holder in holders:
            room.hold(holder.need, holder.held_nodes, project=holder.project_id)
        if room.count_of(need, project=project) >= workload.nodes:
            return ""
        names = [self.name_of(holder) for holder in holders[:_NAMED]]
        return f"capacity is held for {_join_phrases(names)}, for which preemptible work was moved."

    @cached_property
    def _holders_of_capacity(self) -> list[Workload]:
        return list(Workload.objects.with_hold().select_related("project")[:MAX_POSITION])

    def name_of(self, workload: Workload, adjective: str = "") -> str:
        """Return the name of a workload with its project, if the person may know it."""
        noun = kind_of(workload.kind).noun
        slug = self._visible.get(workload.project_id)
        if slug is not None:
            note = f" ({adjective})" if adjective else ""
            return f"{noun} {workload.name} of project {slug}{note}"
        return f"another project's {f'{adjective} {noun}'.strip()}"

    def _by_growth(self, workload: Workload) -> str:
        """Say which node of a group starts for it, or why none does, if it fits nowhere now."""
        if not self._has_groups:
            return ""
        room = Capacity(self._sites)
        if room.count_of(workload.need, project=workload.project_id) >= workload.nodes:
            return ""
        return growth_reason(workload)

    def _by_nodes(self, workload: Workload) -> str:
        """Say so if no node that could fit it is open for work."""
        need = workload.need
        project = workload.project_id
        nodes = [node for node in self._nodes if node.group_id not in self._others_groups(project)]
        never = infeasible_reason(nodes, need, workload.nodes)
        if never:
            return f"no node can fit it anymore: {never}"
        if any(site.suits(need) for site in self._sites_for(workload)):
            return ""
        closed = [
            node
            for node in nodes
            if node.suits(need) and node.max_amount_for(need).covers(need.amount)
        ]
        why_closeds = [_closed_reason(node) for node in closed[:_NAMED]]
        others = len(closed) - _NAMED
        if others > 0:
            why_closeds.append(
                f"{others} more node{' is' if others == 1 else 's are'} also unavailable"
            )
        return f"needs {amount_text(need.amount, need.gpu_model)}, but {'; '.join(why_closeds)}."

    def _by_capacity(self, workload: Workload) -> str:
        """Say what is missing where, and who has it, if it does not fit now."""
        need = workload.need
        sites = self._sites_for(workload)
        room = Capacity(sites)
        fitting = room.count_of(need, project=workload.project_id)
        if fitting >= workload.nodes:
            return ""
        if room.count_of(need) >= workload.nodes:
            return self._by_other_project(workload, sites, room)
        asks = amount_text(need.amount, need.gpu_model)
        if workload.nodes > 1:
            return (
                f"needs {workload.nodes} tasks of {asks} at once; "
                f"{fitting} {'fits' if fitting == 1 else 'fit'} now{self._behind(workload)}."
            )
        suiting = [i for i, site in enumerate(sites) if site.suits(need)]
        admitting = [i for i in suiting if room.admits(i, need, workload.project_id)]
        at = min(admitting or suiting, key=lambda i: missing_part(sites[i].free, need))
        site = sites[at]
        lacking = _lacking(site.free, need.amount, need.gpu_model)
        holders = self._holders(site, lacking)
        return (
            f"needs {amount_text(lacking, need.gpu_model)}; node {site.name} has "
            f"{_free_text(site.free, lacking, need.gpu_model)} free"
            f"{f', the rest is held by {holders}' if holders else ''}{self._behind(workload)}."
        )

    def _by_other_project(self, workload: Workload, sites: list[Site], room: Capacity) -> str:
        """Say which nodes run another project's work and cannot keep the two apart."""
        need = workload.need
        names = [
            site.name
            for i, site in enumerate(sites)
            if site.suits(need)
            and site.free.count_of(need)
            and not room.admits(i, need, workload.project_id)
        ]
        if len(names) == 1:
            which = f"node {names[0]} cannot isolate projects and is running another project's"
            when, whose = "it becomes available when that work ends", "the node's"
        else:
            listed = _join_phrases(
                names[:_NAMED] if len(names) <= _NAMED else [*names[:2], f"{len(names) - 2} others"]
            )
            which = f"nodes {listed} cannot isolate projects and are running other projects'"
            when, whose = "each becomes available when its work ends", "a node's"
        return (
            f"{which} work; {when}{self._behind(workload)}. An administrator can allow projects "
            f"to mix in {whose} settings."
        )

    def _by_queue_position(self, workload: Workload) -> str:
        position = position_of(workload)
        if position is None or position > 1:
            ahead = f"{MAX_POSITION} or more" if position is None else str(position - 1)
            first = "workload is" if position == 2 else "workloads are"
            slug = workload.project.slug
            return f"{ahead} {first} ahead of it in the queue of project {slug}."
        others = Share.objects.filter(queued__gt=0, project__isnull=False)
        if others.exclude(project_id=workload.project_id).exists():
            return (
                f"it fits now and is next in project {workload.project.slug}, but projects with "
                "less recent usage go first, and capacity is reserved for them."
            )
        return "it fits now and starts within seconds."

    def _behind(self, workload: Workload) -> str:
        position = position_of(workload)
        if position == 1:
            return ""
        where = f"{MAX_POSITION} or more" if position is None else str(position)
        return f"; position {where} in the queue of project {workload.project.slug}"

    @cached_property
    def _sites(self) -> list[Site]:
        return read_sites()

    @cached_property
    def _has_groups(self) -> bool:
        return NodeGroup.objects.present().exists()

    def _others_groups(self, project_id: str) -> set[str | None]:
        """Return the groups of nodes that take no work of a project."""
        limits = projects_of_groups(node.group_id for node in self._nodes)
        return {group for group, projects in limits.items() if project_id not in projects}

    def _sites_for(self, workload: Workload) -> list[Site]:
        return [site for site in self._sites if site.is_for(workload.project_id)]

    @cached_property
    def _nodes(self) -> list[Node]:
        return list(Node.objects.lasting().order_by("name"))

    @cached_property
    def _visible(self) -> dict[str, str]:
        return dict(Project.objects.visible_to(self._viewer).values_list("pk", "slug"))

    def _holders(self, site: Site, lacking: Amount) -> str:
        """Name who holds what is lacking on a node: own things by name, others by kind alone."""
        leases = Lease.objects.open().filter(node_id=site.node_id).select_related("workload")
        if lacking.gpus:
            leases = leases.filter(gpus__gt=0)
        counter = Counter(self._label_of(lease.workload) for lease in leases.order_by("pk")[:200])
        phrases = [
            phrase if count == 1 or not phrase.startswith("another") else _several(phrase, count)
            for phrase, count in counter.items()
        ]
        if len(phrases) > _NAMED:
            phrases = [*phrases[:_NAMED], f"{len(phrases) - _NAMED} more"]
        return _join_phrases(phrases)

    def _label_of(self, workload: Workload) -> str:
        noun = kind_of(workload.kind).noun
        slug = self._visible.get(workload.project_id)
        return f"{slug}'s {noun} {workload.name}" if slug else f"another project's {noun}"


def _several(phrase: str, count: int) -> str:
    noun = phrase.removeprefix("another project's ")
    return f"{count} {noun}s of other projects"


def _join_phrases(phrases: Iterable[str]) -> str:
    *most, last = [*phrases] or [""]
    return f"{', '.join(most)} and {last}" if most else last


def _over(quota: Quota, share: Share, total: Amount) -> str:
    if quota.running is not None and share.running + 1 > quota.running:
        return f"may run {quota.running} at once, and {share.running} run now"
    if quota.cpu_millis is not None and share.cpu_millis + total.cpu_millis > quota.cpu_millis:
        return (
            f"may use {cpus_text(quota.cpu_millis)} at once; {cpus_text(share.cpu_millis)} are in "
            f"use and this needs {cpus_text(total.cpu_millis)}"
        )
    if quota.gpus is not None and total.gpus and share.gpus + total.gpus > quota.gpus:
        return (
            f"may use {count_noun(quota.gpus, 'GPU')} at once; {share.gpus} are in use and this "
            f"needs {total.gpus}"
        )
    return ""


def _closed_reason(node: Node) -> str:
    if node.state != "ready":
        why = f" ({node.reason})" if node.reason else ""
        return f"node {node.name} is {node.state}{why}"
    return f"node {node.name} {_last_heartbeat_text(node.last_seen_at)}"


def _last_heartbeat_text(at: datetime | None) -> str:
    if at is None:
        return "has not sent a heartbeat yet"
    minutes = int((clock.now() - at).total_seconds() // 60)
    ago = f"{count_noun(minutes, 'minute')} ago" if minutes else "less than a minute ago"
    return f"sent its last heartbeat {ago}"


def _lacking(free: FreeCapacity, amount: Amount, model: str) -> Amount:
    """Return those parts of an amount that are not free, in full."""
    gpus = sum(1 for _, text in free.gpus if not model or text == model)
    return Amount(
        amount.cpu_millis if free.cpu_millis < amount.cpu_millis else 0,
        amount.memory_bytes if free.memory_bytes < amount.memory_bytes else 0,
        amount.gpus if gpus < amount.gpus else 0,
    )


def _free_text(free: FreeCapacity, lacking: Amount, model: str) -> str:
    parts = []
    if lacking.cpu_millis:
        parts.append(cpus_text(free.cpu_millis))
    if lacking.memory_bytes:
        parts.append(amount_text(Amount(0, free.memory_bytes)) if free.memory_bytes else "0 GiB")
    if lacking.gpus:
        parts.append(str(sum(1 for _, text in free.gpus if not model or text == model)))
    return _join_phrases(parts)
