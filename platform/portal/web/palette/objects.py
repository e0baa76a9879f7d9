"""Search for objects by name: those of projects, and for administrators those of the installation.

KIND_NOUNS says for every kind of object in the audit log what finds it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse

from portal.accounts.models import Project, ProjectSecret, ServiceAccount, User
from portal.accounts.models.tenancy import roles_in
from portal.accounts.principal import Principal
from portal.compute.models import NamedEnvironment, Node, NodeGroup, Pool, Tier
from portal.datasets.models import Dataset
from portal.experiments.models import Experiment, Run
from portal.notebooks.models import NotebookFile
from portal.pipelines.models import PipelineRun, ProjectSchedule
from portal.registry.catalog import newest_models_matching, newest_versions_matching
from portal.reports.models import Report
from portal.spend.models import Budget
from portal.sweeps.models import Sweep
from portal.web.base.dates import exact
from slipway.schemas.accounts import Role

# A search reads the newest projects, experiments and runs, so that it is quick in every
# installation. Lists of runs search all of them.
MOST_PROJECTS = 500
_EXPERIMENTS = 4
_RUNS_EACH = 250
_SECRETS = 100
_RUN_ID = re.compile(r"[0-9a-f]{6,32}")
_VERSION = re.compile(r"(?P<model>.*?)[\s:]*(?:\bversion\s*|\bv)?(?P<number>\d{1,9})")
# Groups of the palette by kind of object in the audit log. A kind without a page of its own, or one
# that is part of another object's page, is in WITHOUT_PAGE.
KIND_NOUNS = {
    "project": "projects",
    "team": "teams",
    "user": "people",
    "member": "people",
    "workload": "jobs",
    "sweep": "sweeps",
    "pipeline_run": "pipeline runs",
    "schedule": "schedules",
    "notebook": "notebook files",
    "secret": "secrets",
    "service_account": "service accounts",
    "node": "nodes",
    "tier": "hardware tiers",
    "pool": "pools",
    "node_group": "node groups",
    "budget": "budgets",
    "dataset": "datasets",
    "run": "runs",
    "experiment": "experiments",
    "model": "models",
    "model_version": "model versions",
    "endpoint": "endpoints",
    "report": "reports",
    "named_environment": "environments",
}
WITHOUT_PAGE = frozenset(
    {
        *("invitation", "token", "environment", "file", "quota", "rate", "dataset_version"),
        *("promotion_request", "registry_rules", "endpoint_key", "alert", "alert_channel"),
        *("selection", "erasure", "gateway", "hub", "workspace", "note"),
        "optuna_storage",
        "batch_prediction",
    }
)


@dataclass(frozen=True)
class PaletteItem:
    """One line of the palette."""

    label: str
    kind: str
    icon: str
    url: str


def search_objects(
    principal: Principal,
    projects: dict[str, Project],
    here: Project | None,
    text: str,
    *,
    limit: int,
) -> dict[str, list[PaletteItem]]:
    """Return at most `limit` objects of each kind whose name contains `text`, by plural noun.

    `projects` are the newest live projects of the principal, by id. Runs are those of `here`, if it
    is given.
    """
    groups: dict[str, Callable[[], list[PaletteItem]]] = {
        "models": lambda: _models(projects, text, limit),
        "model versions": lambda: _model_versions(projects, text, limit),
        "experiments": lambda: _experiments(projects, text, limit),
        "runs": lambda: _runs({here.pk: here} if here else projects, text, limit),
        "sweeps": lambda: _sweeps(principal, text, limit),
        "pipeline runs": lambda: _pipeline_runs(principal, text, limit),
        "schedules": lambda: _schedules(principal, text, limit),
        "datasets": lambda: _datasets(principal, text, limit),
        "reports": lambda: _reports(principal, text, limit),
        "environments": lambda: _environments(principal, text, limit),
        "notebook files": lambda: _notebook_files(principal, text, limit),
        "secrets": lambda: _secrets(principal.user, projects, text, limit),
        "service accounts": lambda: _service_accounts(principal, text, limit),
        "budgets": lambda: _budgets(principal, text, limit),
    }
    if principal.user.is_administrator:
        groups |= {
            "nodes": lambda: _nodes(text, limit),
            "hardware tiers": lambda: _tiers(text, limit),
            "pools": lambda: _pools(text, limit),
            "node groups": lambda: _node_groups(text, limit),
        }
    return {noun: search() for noun, search in groups.items()}


def _item(
    label: str, noun: str, icon: str, project: Project, page: str, *args: object
) -> PaletteItem:
    url = reverse(page, args=[project.slug, *args])
    return PaletteItem(label, f"{noun} of {project.name}", icon, url)


def _models(projects: dict[str, Project], text: str, limit: int) -> list[PaletteItem]:
    return [
        _item(name, "model", "packages", projects[project_id], "project_model", name)
        for project_id, name in newest_models_matching(projects, text, limit=limit)
    ]


def _model_versions(projects: dict[str, Project], text: str, limit: int) -> list[PaletteItem]:
    """Return versions for a text that ends with their number: "churn 3", "churn v3", "churn:3"."""
    match = _VERSION.fullmatch(text.strip())
    if match is None or not match["model"]:
        return []
    number = int(match["number"])
    versions = newest_versions_matching(projects, match["model"], number, limit=limit)
    return [
        _item(
            f"{name} version {number}",
            "model version",
            "packages",
            projects[project_id],
            "project_model_version",
            name,
            number,
        )
        for project_id, name in versions
    ]


def _experiments(projects: dict[str, Project], text: str, limit: int) -> list[PaletteItem]:
    rows = Experiment.objects.in_projects(projects).active().filter(name__icontains=text)
    return [
        _item(
            row.name, "experiment", "flask", projects[row.workspace], "project_experiment", row.pk
        )
        for row in rows.order_by("-experiment_id")[:limit]
    ]


def _runs(projects: dict[str, Project], text: str, limit: int) -> list[PaletteItem]:
    return [
        _item(
            f"{run.name or run.run_uuid[:8]} · {run.experiment.name}",
            "run",
            "flask",
            projects[run.experiment.workspace],
            "project_run",
            run.run_uuid,
        )
        for run in matching_runs(projects, text, limit)
    ]


def matching_runs(projects: dict[str, Project], text: str, limit: int) -> list[Run]:
    """Return runs by the beginning of their id, or newest runs by name, with their experiment."""
    if _RUN_ID.fullmatch(text):
        # A range, which the primary key answers on both databases. "g" follows every hex digit.
        by_id = Run.objects.in_projects(projects).active()
        by_id = by_id.filter(run_uuid__gte=text, run_uuid__lt=f"{text}g")
        runs = list(by_id.select_related("experiment")[:limit])
        if runs:
            return runs
    return _newest_runs(projects, text, limit)


def _newest_runs(projects: dict[str, Project], text: str, limit: int) -> list[Run]:
    # An index has the newest runs of one experiment, and none those of several.
    experiments = Experiment.objects.in_projects(projects).active().order_by("-experiment_id")
    names: list[tuple[int, str]] = []
    for experiment_id in experiments.values_list("experiment_id", flat=True)[:_EXPERIMENTS]:
        newest = Run.objects.filter(experiment_id=experiment_id).active().order_by("-start_time")
        rows = newest.values_list("start_time", "run_uuid", "name")[:_RUNS_EACH]
        matching = (row for row in rows if text.lower() in (row[2] or "").lower())
        names.extend((started or 0, run_id) for started, run_id, _ in matching)
    ids = [run_id for _, run_id in sorted(names, reverse=True)[:limit]]
    runs = Run.objects.filter(run_uuid__in=ids).select_related("experiment")
    return sorted(runs, key=lambda run: ids.index(run.run_uuid))


def _datasets(principal: Principal, text: str, limit: int) -> list[PaletteItem]:
    rows = Dataset.objects.visible_to(principal).filter(name__icontains=text)
    return [
        _item(row.name, "dataset", "folder", row.project, "project_dataset", row.name)
        for row in rows.select_related("project").order_by("-pk")[:limit]
    ]


def _sweeps(principal: Principal, text: str, limit: int) -> list[PaletteItem]:
    rows = Sweep.objects.visible_to(principal).filter(name__icontains=text)
    return [
        _item(row.name, "sweep", "chart-line", row.project, "project_sweep", row.pk)
        for row in rows.select_related("project").order_by("-pk")[:limit]
    ]


def _pipeline_runs(principal: Principal, text: str, limit: int) -> list[PaletteItem]:
    """Return the newest runs of pipelines by name. Runs of one pipeline differ in their start."""
    rows = PipelineRun.objects.visible_to(principal).filter(name__icontains=text)
    rows = rows.select_related("project").only(
        "name", "created_at", "project__slug", "project__name"
    )
    return [
        _item(
            f"{row.name}, {exact(row.created_at)}",
            "run of a pipeline",
            "sitemap",
            row.project,
            "project_pipeline_run",
            row.pk,
        )
        for row in rows.order_by("-pk")[:limit]
    ]


def _schedules(principal: Principal, text: str, limit: int) -> list[PaletteItem]:
    rows = ProjectSchedule.objects.visible_to(principal).filter(name__icontains=text)
    return [
        _item(row.name, "schedule", "clock", row.project, "project_schedule", row.name)
        for row in rows.select_related("project").order_by("-pk")[:limit]
    ]


def _notebook_files(principal: Principal, text: str, limit: int) -> list[PaletteItem]:
    files = NotebookFile.objects.current().filter(project__in=principal.projects().live())
    return [
        _item(row.path, "notebook file", "book", row.project, "project_notebook_file", row.pk)
        for row in files.matching(text).select_related("project").order_by("-pk")[:limit]
    ]


def _reports(principal: Principal, text: str, limit: int) -> list[PaletteItem]:
    rows = Report.objects.filter(project__in=principal.projects().live()).matching(text)
    return [
        _item(row.title, "report", "file-text", row.project, "project_report", row.pk)
        for row in rows.select_related("project").order_by("-pk")[:limit]
    ]


def _environments(principal: Principal, text: str, limit: int) -> list[PaletteItem]:
    rows = NamedEnvironment.objects.filter(project__in=principal.projects().live())
    rows = rows.active().matching(text)
    return [
        _item(row.name, "environment", "stack-2", row.project, "project_environment", row.name)
        for row in rows.select_related("project").order_by("-pk")[:limit]
    ]


def _secrets(user: User, projects: dict[str, Project], text: str, limit: int) -> list[PaletteItem]:
    """Return secrets of the projects in which the person may see names of secrets."""
    rows = ProjectSecret.objects.filter(project__in=list(projects), name__icontains=text)
    newest = list(rows.order_by("-pk").values_list("project_id", "name")[:_SECRETS])
    roles = roles_in(user, {projects[project_id] for project_id, _ in newest}) if newest else {}
    items: list[PaletteItem] = []
    for project_id, name in newest:
        project, role = projects[project_id], roles.get(project_id)
        if role is not None and role.at_least(Role.CONTRIBUTOR):
            url = f"{reverse('project_secrets', args=[project.slug])}?{urlencode({'q': name})}"
            items.append(PaletteItem(name, f"secret of {project.name}", "lock", url))
    return items[:limit]


def _service_accounts(principal: Principal, text: str, limit: int) -> list[PaletteItem]:
    rows = ServiceAccount.objects.filter(
        project__in=principal.projects().live(), deleted_at__isnull=True, name__icontains=text
    )
    return [
        _item(
            row.name,
            "service account",
            "user-cog",
            row.project,
            "project_service_account",
            row.name,
        )
        for row in rows.select_related("project").order_by("-pk")[:limit]
    ]


def _budgets(principal: Principal, text: str, limit: int) -> list[PaletteItem]:
    rows = Budget.objects.visible_to(principal).select_related("project", "team", "person")
    rows = rows.filter(
        Q(project__name__icontains=text)
        | Q(project__slug__icontains=text)
        | Q(team__name__icontains=text)
        | Q(team__slug__icontains=text)
        | Q(person__email__icontains=text)
        | Q(person__name__icontains=text)
    )
    return [
        PaletteItem(
            f"Budget of {row.scope_name}", "budget", "wallet", reverse("budget", args=[row.pk])
        )
        for row in rows.order_by("-pk")[:limit]
    ]


def _nodes(text: str, limit: int) -> list[PaletteItem]:
    rows = Node.objects.present().filter(name__icontains=text).order_by("-pk")[:limit]
    return [
        PaletteItem(row.name, "node", "server-2", reverse("node", args=[row.name])) for row in rows
    ]


def _tiers(text: str, limit: int) -> list[PaletteItem]:
    rows = Tier.objects.filter(Q(slug__icontains=text) | Q(name__icontains=text))
    return [
        PaletteItem(row.slug, "hardware tier", "cpu", reverse("tier", args=[row.slug]))
        for row in rows.order_by("slug")[:limit]
    ]


def _node_groups(text: str, limit: int) -> list[PaletteItem]:
    rows = NodeGroup.objects.present().filter(name__icontains=text).order_by("-pk")[:limit]
    return [
        PaletteItem(row.name, "node group", "stack-2", reverse("node_group", args=[row.name]))
        for row in rows
    ]


def _pools(text: str, limit: int) -> list[PaletteItem]:
    rows = Pool.objects.present().filter(name__icontains=text).order_by("-pk")[:limit]
    return [
        PaletteItem(row.name, "pool", "topology-star-3", reverse("pool", args=[row.name]))
        for row in rows
    ]
