"""Breadcrumbs of all pages: the pages above each page, from one table.

A page's breadcrumbs follow from its route name, so templates do not write any. A page without an
entry in PARENTS has none: it is at the top of the navigation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.template import Context, Variable, VariableDoesNotExist
from django.urls import get_resolver, reverse


@dataclass(frozen=True)
class ParentPage:
    """A page that has pages below it.

    The label is the first of `paths` that the template's context has, else the value of
    `parameter` in the URL, else `noun`. `query` names the parameters of the query that its link
    keeps. `arguments` are the paths in the context of URL parameters that the page below lacks.
    """

    noun: str
    paths: tuple[str, ...] = ()
    parameter: str = ""
    query: tuple[str, ...] = ()
    arguments: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Breadcrumb:
    """One link of the breadcrumbs."""

    label: str
    url: str


LEVELS = {
    "home": ParentPage("Home"),
    "projects": ParentPage("Projects"),
    "project": ParentPage("Project", ("shell.project.name",)),
    "teams": ParentPage("Teams"),
    "team": ParentPage("Team", ("shell.team.name",)),
    "project_members": ParentPage("Members"),
    "team_members": ParentPage("Members"),
    "project_secrets": ParentPage("Secrets"),
    "project_settings": ParentPage("Project settings"),
    "project_jobs": ParentPage("Jobs"),
    "project_job": ParentPage("Job", ("workload.name", "shown.status.workload.name")),
    "project_batch_predictions": ParentPage("Batch predictions"),
    "project_sweeps": ParentPage("Sweeps"),
    "project_sweep": ParentPage("Sweep", ("sweep.name",)),
    "project_optuna_storages": ParentPage("Optuna storages"),
    "project_pipelines": ParentPage("Pipelines"),
    "project_pipeline_run": ParentPage("Run of a pipeline", ("pipeline_run.name",)),
    "project_schedules": ParentPage("Schedules"),
    "project_schedule": ParentPage("Schedule", ("schedule.name",), "schedule"),
    "project_workload": ParentPage("Workload", ("workload.name",)),
    "project_service_accounts": ParentPage("Service accounts"),
    "project_service_account": ParentPage("Service account", (), "account"),
    "project_environments": ParentPage("Environments"),
    "project_environment": ParentPage("Environment", (), "environment"),
    "project_notebooks": ParentPage("Notebooks"),
    "project_notebook": ParentPage("Notebook", ("server.name",)),
    "project_notebook_files": ParentPage("Notebook files"),
    "project_notebook_file": ParentPage("Notebook file", ("notebook.path",)),
    "project_notebook_job": ParentPage("Run of a notebook", ("shown.status.workload.name",)),
    "project_workspace": ParentPage("Workspace files", query=("area", "node")),
    "project_datasets": ParentPage("Datasets"),
    "project_dataset": ParentPage("Dataset", ("dataset.name",), "dataset"),
    "project_dataset_version": ParentPage("Version", ("version.reference",)),
    "project_experiments": ParentPage("Experiments"),
    "project_experiment": ParentPage(
        "Experiment",
        ("run.experiment", "experiment.name"),
        arguments={"experiment": "run.facts.experiment_id"},
    ),
    "project_runs": ParentPage("Runs"),
    "project_run": ParentPage("Run", ("run.facts.name", "run.facts.id"), "run"),
    "project_compare": ParentPage("Compare", query=("run",)),
    "project_models": ParentPage("Models"),
    "project_model": ParentPage("Model", (), "model"),
    "project_model_version": ParentPage("Version", ("plan.version.number",), "version"),
    "project_endpoints": ParentPage("Endpoints"),
    "project_endpoint": ParentPage("Endpoint", (), "endpoint"),
    "project_endpoint_keys": ParentPage("Keys"),
    "project_endpoint_monitoring": ParentPage("Monitoring"),
    "project_reports": ParentPage("Reports"),
    "project_report": ParentPage("Report", ("report.title",)),
    "spend": ParentPage("Spend"),
    "budgets": ParentPage("Budgets"),
    "budget": ParentPage("Budget"),
    "profile": ParentPage("Profile"),
    "tokens": ParentPage("API tokens"),
    "people": ParentPage("People"),
    "person": ParentPage("Person", ("person.display_name",)),
    "nodes": ParentPage("Nodes"),
    "node": ParentPage("Node", (), "node"),
    "node_groups": ParentPage("Node groups"),
    "node_group": ParentPage("Node group", (), "group"),
    "pools": ParentPage("Pools"),
    "pool": ParentPage("Pool", (), "pool"),
    "tiers": ParentPage("Hardware tiers"),
    "tier": ParentPage("Hardware tier", (), "tier"),
    "docs": ParentPage("Documentation", query=("project",)),
}

# The page above each page. Without an experiment, a run is below the list of experiments.
PARENTS = {
    "notifications": "home",
    "project_new": "projects",
    "project": "projects",
    "project_members": "project",
    "project_remove": "project_members",
    "project_service_accounts": "project",
    "project_service_account_new": "project_service_accounts",
    "project_service_account": "project_service_accounts",
    "project_service_account_edit": "project_service_account",
    "project_service_account_disable": "project_service_account",
    "project_service_account_delete": "project_service_account",
    "project_service_token_new": "project_service_account",
    "project_service_token_revoke": "project_service_account",
    "project_secrets": "project",
    "project_secret_write": "project_secrets",
    "project_secret_delete": "project_secrets",
    "project_settings": "project",
    "project_archive": "project_settings",
    "project_audit": "project",
    "team_new": "teams",
    "team": "teams",
    "team_members": "team",
    "team_remove": "team_members",
    "team_settings": "team",
    "team_audit": "team",
    "project_jobs": "project",
    "project_job_new": "project_jobs",
    "project_job": "project_jobs",
    "project_job_diff": "project_job",
    "project_job_shell": "project_job",
    "project_job_cancel": "project_job",
    "project_sweeps": "project",
    "project_sweep_new": "project_sweeps",
    "project_sweep": "project_sweeps",
    "project_optuna_study": "project_sweeps",
    "project_optuna_storages": "project_sweeps",
    "project_optuna_storage_delete": "project_optuna_storages",
    "project_sweep_repeat": "project_sweep",
    "project_sweep_stop": "project_sweep",
    "project_pipelines": "project",
    "project_pipeline_run": "project_pipelines",
    "project_pipeline_cancel": "project_pipeline_run",
    "project_pipeline_decide": "project_pipelines",
    "project_schedules": "project",
    "project_schedule_new": "project_schedules",
    "project_schedule": "project_schedules",
    "project_schedule_edit": "project_schedule",
    "project_schedule_delete": "project_schedule",
    "project_schedule_hook": "project_schedules",
    "project_workload": "project",
    "project_workload_find": "project_workload",
    "project_workload_stop": "project_workload",
    "project_notebooks": "project",
    "project_notebook_new": "project_notebooks",
    "project_notebook": "project_notebooks",
    "project_notebook_edit": "project_notebook",
    "project_notebook_stop": "project_notebook",
    "project_notebook_delete": "project_notebook",
    "project_notebook_files": "project",
    "project_notebook_file": "project_notebook_files",
    "project_notebook_diff": "project_notebook_file",
    "project_notebook_file_delete": "project_notebook_file",
    "project_notebook_branch": "project_notebook_file",
    "project_notebook_run": "project_notebook_file",
    "project_notebook_job": "project_notebook_files",
    "project_notebook_output": "project_notebook_job",
    "project_workspace": "project",
    "project_workspace_file": "project_workspace",
    "project_workspace_folder": "project_workspace",
    "project_workspace_move": "project_workspace",
    "project_workspace_delete": "project_workspace",
    "project_datasets": "project",
    "project_dataset_new": "project_datasets",
    "project_dataset": "project_datasets",
    "project_dataset_delete": "project_dataset",
    "project_dataset_version": "project_dataset",
    "project_dataset_version_delete": "project_dataset_version",
    "project_experiments": "project",
    "project_experiment": "project_experiments",
    "project_experiment_delete": "project_experiment",
    "project_trash_empty": "project_experiments",
    "project_runs": "project_experiments",
    "project_columns": "project_runs",
    "project_run": "project_experiment",
    "project_run_edit": "project_run",
    "project_run_results": "project_run",
    "project_compare": "project_runs",
    "project_compare_artifacts": "project_compare",
    "project_compare_code": "project_compare",
    "project_importance": "project_compare",
    "project_batch_predictions": "project_models",
    "project_batch_prediction_new": "project_batch_predictions",
    "project_batch_prediction": "project_batch_predictions",
    "project_models": "project",
    "project_model_register": "project_models",
    "project_rules": "project_models",
    "project_model": "project_models",
    "project_model_card": "project_model",
    "project_model_version": "project_model",
    "project_model_promote": "project_model_version",
    "project_endpoints": "project",
    "project_endpoint_new": "project_endpoints",
    "project_endpoint": "project_endpoints",
    "project_endpoint_traffic": "project_endpoint",
    "project_endpoint_revisions": "project_endpoint",
    "project_endpoint_use": "project_endpoint",
    "project_endpoint_logs": "project_endpoint",
    "project_endpoint_settings": "project_endpoint",
    "project_endpoint_replica": "project_endpoint",
    "project_endpoint_promote": "project_endpoint",
    "project_endpoint_pause": "project_endpoint",
    "project_endpoint_delete": "project_endpoint",
    "project_endpoint_change": "project_endpoint",
    "project_endpoint_try": "project_endpoint",
    "project_endpoint_keys": "project_endpoint",
    "project_endpoint_key_new": "project_endpoint_keys",
    "project_endpoint_key_revoke": "project_endpoint_keys",
    "project_endpoint_monitoring": "project_endpoint",
    "project_endpoint_predictions": "project_endpoint_monitoring",
    "project_endpoint_labels": "project_endpoint_monitoring",
    "project_endpoint_watching": "project_endpoint_monitoring",
    "project_readme": "project",
    "project_note": "project",
    "project_environments": "project",
    "project_environment_new": "project_environments",
    "project_environment": "project_environments",
    "project_environment_version": "project_environment",
    "project_environment_edit": "project_environment",
    "project_environment_archive": "project_environment",
    "project_reports": "project",
    "project_report_new": "project_reports",
    "project_report_pick": "project_reports",
    "project_report": "project_reports",
    "project_report_edit": "project_report",
    "project_report_versions": "project_report",
    "project_report_restore": "project_report",
    "project_report_delete": "project_report",
    "project_report_share": "project_report",
    "project_report_unshare": "project_report",
    "project_spend": "project",
    "spend_installation": "spend",
    "spend_rates": "spend",
    "spend_rent_or_buy": "spend",
    "budgets": "spend",
    "budget": "budgets",
    "budget_delete": "budget",
    "token_new": "tokens",
    "token_revoke": "tokens",
    "person": "people",
    "person_suspend": "person",
    "person_change": "person",
    "node_join": "nodes",
    "node": "nodes",
    "node_change": "node",
    "node_drain": "node",
    "node_remove": "node",
    "node_group_new": "node_groups",
    "node_group": "node_groups",
    "node_group_change": "node_group",
    "node_group_remove": "node_group",
    "pool_new": "pools",
    "pool": "pools",
    "pool_change": "pool",
    "pool_remove": "pool",
    "pool_account": "profile",
    "tier_new": "tiers",
    "tier": "tiers",
    "tier_retire": "tier",
    "docs_page": "docs",
}


def breadcrumbs(context: Context) -> list[Breadcrumb]:
    """Return the links to the pages above the page that is rendered, topmost first."""
    request = context.get("request")
    match = getattr(request, "resolver_match", None)
    if request is None or match is None:
        return []
    values = dict(match.kwargs)
    trail = [_breadcrumb(context, request, route, values) for route in _above(match.url_name or "")]
    return [link for link in reversed(trail) if link is not None]


def _above(route: str) -> Iterator[str]:
    while route := PARENTS.get(route, ""):
        yield route


def _breadcrumb(
    context: Context, request: HttpRequest, route: str, values: dict[str, Any]
) -> Breadcrumb | None:
    """Return the link to a page, or None if the page below does not determine it."""
    level = LEVELS[route]
    arguments = {}
    for name in _parameters(route):
        path = (level.arguments or {}).get(name)
        value = values.get(name) or (_in_context(context, path) if path else None)
        if not value:
            return None
        arguments[name] = value
    query = [(name, value) for name in level.query for value in request.GET.getlist(name)]
    url = reverse(route, kwargs=arguments) + (f"?{urlencode(query)}" if query else "")
    return Breadcrumb(_label(context, level, values), url)


def _parameters(route: str) -> list[str]:
    [(_pattern, parameters)] = get_resolver().reverse_dict.getlist(route)[0][0]
    return list(parameters)


def _label(context: Context, level: ParentPage, values: dict[str, Any]) -> str:
    for path in level.paths:
        if label := _in_context(context, path):
            return str(label)
    return str(values.get(level.parameter) or level.noun)


def _in_context(context: Context, path: str) -> Any:
    try:
        return Variable(path).resolve(context)
    except VariableDoesNotExist:
        return None
