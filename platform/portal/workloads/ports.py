"""Extension points for other apps: admission of workloads, and the kinds of workload."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Protocol

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.compute.models import Node
from portal.core.errors import InvalidInput
from portal.workloads.models import Workload
from portal.workloads.presentation import PageAddress, Presentation, SearchHit
from portal.workloads.retries import RetryRule
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.agent import StoredCheckpoint, TaskReport
from slipway.schemas.workspace_files import FileRequest


@dataclass(frozen=True)
class AdmissionRequest:
    """Request for admission of a workload. `nano_usd_per_hour` is the price of all its tasks.

    `team_id` is that of the project, empty without one. `name` is the workload's.
    """

    workload_id: str
    team_id: str
    name: str
    project_id: str
    user_id: str
    kind: str
    tier: str
    tasks: int
    nano_usd_per_hour: int
    max_lifetime_s: int | None
    is_preemptible: bool = False


@dataclass(frozen=True)
class AdmissionGranted:
    """The workload may queue."""


@dataclass(frozen=True)
class AdmissionDeferred:
    """The workload may queue later and is checked again. `reason` is a sentence with the reason."""

    reason: str


class Admission(Protocol):
    """Decides whether a workload may queue. Refusing for good is raising a `SlipwayError`."""

    def decide(self, request: AdmissionRequest) -> AdmissionGranted | AdmissionDeferred:
        """Decide, inside the transaction that submits. Only database work is allowed."""


class AdmitEverything:
    """The admission in force while no other app has registered one."""

    def decide(self, request: AdmissionRequest) -> AdmissionGranted | AdmissionDeferred:
        """Admit."""
        return AdmissionGranted()


class TaskEnvironment(Protocol):
    """Environment variables that a kind adds to its tasks, beside the project's secrets."""

    def __call__(self, *, workload_id: str, index: int) -> Mapping[str, str]:
        """Return variables. Called each time an agent asks, so the same ones each time."""


def _no_environment(*, workload_id: str, index: int) -> Mapping[str, str]:
    return {}


class StopRule(Protocol):
    """Says who may stop a workload of a kind, among those who may stop work of the project."""

    def __call__(self, *, workload: Workload, by: User, role: Role) -> None:
        """Raise Forbidden unless somebody with that role in the project may stop the workload."""


def _everybody(*, workload: Workload, by: User, role: Role) -> None:
    """Let every contributor stop it, as a job or a replica."""


class ReportHandler(Protocol):
    """Stores what tasks of a kind report beyond what every workload does."""

    def __call__(self, *, workload_id: str, attempt: int, report: TaskReport, at: datetime) -> str:
        """Accept a progress report of the current attempt. Returns a line for the history, or "".

        Called inside the transaction that accepts the report, and again when that is repeated. An
        earlier report may come after a later one. Only database work is allowed.
        """


# Returns why a workload that fails now is not kept for shells, "" if it may be. Called inside the
# transaction that would keep it, with the lock of its row.
KeepRule = Callable[[str], str]


def _always() -> bool:
    return True


def _ignore_report(*, workload_id: str, attempt: int, report: TaskReport, at: datetime) -> str:
    return ""


class StopWarning(Protocol):
    """Warns the users of a workload that it will be stopped, and has its work saved."""

    def __call__(self, *, workload_id: str, stops_at: datetime, why: str) -> None:
        """Warn and save. Called outside a transaction, and again while it has not stopped yet."""


def _ignore_stop_warning(*, workload_id: str, stops_at: datetime, why: str) -> None:
    pass


class WorkCounter(Protocol):
    """Counts what workloads of a kind have done for somebody, such as predictions."""

    def __call__(
        self, *, projects: Collection[str] | None, first: date, last: date
    ) -> Mapping[tuple[str, str], int]:
        """Return how much was done from day to day (UTC), by (id of the project, group).

        `projects` are ids. None is all of them. Only database work is allowed.
        """


def _count_nothing(
    *, projects: Collection[str] | None, first: date, last: date
) -> Mapping[tuple[str, str], int]:
    return {}


def _own_name(name: str) -> str:
    return name


@dataclass(frozen=True)
class Grouping:
    """Parent that several workloads of a kind belong to, such as an experiment or an endpoint.

    `group_of` returns what the group of a workload is called, from the workload's name, for good.
    `work` is what people call what `work_done` counts. Empty where nothing is counted.
    """

    noun: str
    group_of: Callable[[str], str] = _own_name
    work: str = ""
    work_done: WorkCounter = _count_nothing


@dataclass(frozen=True)
class BudgetRule:
    """Effect of a used-up budget on a kind.

    `is_exempt` lets it run on, unless the budget says that it counts for such kinds too. Otherwise
    it is warned by `save` and stopped `warning_s` later.
    """

    is_exempt: bool = False
    warning_s: float = 0.0
    save: StopWarning = _ignore_stop_warning


def _no_saves(workload_ids: Collection[str]) -> Mapping[str, datetime]:
    return {}


def _no_copy(*, workload_id: str) -> StoredCheckpoint | None:
    return None


@dataclass(frozen=True)
class CheckpointCopies:
    """Copying of a kind's checkpoints to the portal, for workloads of one task.

    `limit_bytes` is the most one may have, 0 for none. `newest` returns what there is of one.
    `saved_at` returns when workloads (by their ids) have saved their newest checkpoint, on their
    node or in the portal. Those without one are left out.
    """

    limit_bytes: Callable[[], int] = int
    newest: Callable[..., StoredCheckpoint | None] = _no_copy
    saved_at: Callable[[Collection[str]], Mapping[str, datetime]] = _no_saves


@dataclass(frozen=True)
class Kind:
    """A kind of workload and its defaults. `noun` is what people call one.

    `moves_when_drained` lets the platform stop it and queue it again. `keeps_on_fence` lets it run
    on while its node cannot reach the portal, so a second one may run meanwhile. `scopes` are those
    of the token its tasks get, which speaks for who submitted it, in its project alone.
    `warm` names its program in `workers.launcher.platform_programs`, and `keeps_warm` says whether
    nodes should keep a warm process of it now.
    `grouping` says what its workloads are parts of. Without it they are not added up. With
    `has_run` each workload has one MLflow run, which follows its state. With `reports_silence` one
    that runs without output, steps and use of a processor is reported, see `silence`. With
    `has_shells` people open shells in its tasks. With `can_be_preempted` its submitter may let the
    scheduler move it for other work. `check_stop` refuses people who may not stop one.
    """

    name: str
    noun: str
    retry: RetryRule = field(default_factory=RetryRule)
    moves_when_drained: bool = False
    can_be_preempted: bool = False
    keeps_on_fence: bool = False
    stop_grace_s: float = 10.0
    hang_after_s: float | None = None
    warm: str | None = None
    keeps_warm: Callable[[], bool] = _always
    has_shells: bool = False
    check_stop: StopRule = _everybody
    scopes: tuple[Scope, ...] = (
        Scope.PROJECTS_READ,
        Scope.FILES_READ,
        Scope.FILES_WRITE,
        Scope.EXPERIMENTS_READ,
        Scope.EXPERIMENTS_WRITE,
    )
    environment: TaskEnvironment = _no_environment
    handle_report: ReportHandler = _ignore_report
    copies: CheckpointCopies = field(default_factory=CheckpointCopies)
    budget: BudgetRule = field(default_factory=BudgetRule)
    grouping: Grouping | None = None
    presentation: Presentation = field(default_factory=Presentation)
    has_run: bool = False
    reports_silence: bool = False

    def page_of(self, workload_id: str) -> PageAddress:
        """Return the page of a workload of this kind: its own, or the generic one."""
        own = self.presentation.page_of(workload_id)
        return own or PageAddress("project_workload", (workload_id,))

    def search(
        self, *, principal: Principal, project: Project | None, text: str, limit: int
    ) -> Sequence[SearchHit]:
        """Return lines of the command palette, as `PaletteSearch` describes."""
        own = self.presentation.search
        if own is not None:
            return own(principal=principal, project=project, text=text, limit=limit)
        workloads = Workload.objects.filter(kind=self.name, name__icontains=text)
        workloads = workloads.filter(project__in=principal.projects().live())
        if project is not None:
            workloads = workloads.filter(project=project)
        newest = workloads.select_related("project").order_by("-pk")[:limit]
        return [
            SearchHit(workload.name, self.noun, workload.project, self.page_of(workload.pk))
            for workload in newest
        ]


class NodeFileRequests(Protocol):
    """Requests of people about the files on a node."""

    def __call__(self, *, node: Node) -> Sequence[FileRequest]:
        """Return the requests that the agent of the node should claim. Only database work."""


def _no_file_requests(*, node: Node) -> Sequence[FileRequest]:
    return ()


class _Registry:
    """Registrations of other apps in this process."""

    def __init__(self) -> None:
        self.admission: Admission = AdmitEverything()
        self.file_requests: NodeFileRequests = _no_file_requests
        self.kinds: dict[str, Kind] = {}
        self.keep_rules: list[KeepRule] = []


_registry = _Registry()


def register_admission(admission: Admission) -> None:
    """Register an admission. Called once, from an app's wiring."""
    _registry.admission = admission


def admission() -> Admission:
    """Return the admission in force."""
    return _registry.admission


def register_file_requests(requests: NodeFileRequests) -> None:
    """Register the app whose pages show files on nodes. Called once, from its wiring."""
    _registry.file_requests = requests


def file_requests(node: Node) -> Sequence[FileRequest]:
    """Return the requests about files that the agent of a node should claim."""
    return _registry.file_requests(node=node)


def register_keep_rule(rule: KeepRule) -> None:
    """Register a rule for failed tasks that are kept for shells. Called from an app's wiring."""
    if rule not in _registry.keep_rules:
        _registry.keep_rules.append(rule)


def obstacle_to_keeping(workload_id: str) -> str:
    """Return why a workload that fails now is not kept, as a sentence, "" if it may be."""
    return next(filter(None, (rule(workload_id) for rule in _registry.keep_rules)), "")


def register_kind(kind: Kind) -> None:
    """Register a kind. Called from an app's wiring. The same kind again replaces it."""
    _registry.kinds[kind.name] = kind


def kinds_that_report_silence() -> list[str]:
    """Return the names of the kinds whose silent workloads are reported."""
    return sorted(kind.name for kind in _registry.kinds.values() if kind.reports_silence)


def known_kind(name: str) -> Kind:
    """Return a kind that may be submitted. Raises InvalidInput for an unknown one."""
    if name not in _registry.kinds:
        known = ", ".join(sorted(_registry.kinds)) or "none"
        raise InvalidInput(
            f"There is no workload kind {name}.",
            field="kind",
            next_step=f"Known kinds: {known}.",
        )
    return _registry.kinds[name]


def kind_of(name: str) -> Kind:
    """Return the kind of a stored workload, with plain defaults if its app is gone."""
    return _registry.kinds.get(name) or Kind(name=name, noun=name.replace("_", " "))


def registered_kinds() -> dict[str, Kind]:
    """Return the kinds that may be submitted, by name, in the order of registration."""
    return dict(_registry.kinds)


def groupings() -> dict[str, Grouping]:
    """Return how workloads are grouped, by the name of their kind. Kinds without are left out."""
    return {
        name: kind.grouping for name, kind in _registry.kinds.items() if kind.grouping is not None
    }


def warm_programs() -> list[str]:
    """Return the names of the programs that nodes should keep warm now."""
    kinds = [kind for kind in _registry.kinds.values() if kind.warm is not None]
    return sorted({kind.warm for kind in kinds if kind.warm is not None and kind.keeps_warm()})
