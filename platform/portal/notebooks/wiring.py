"""Registers notebook servers as a kind of workload, with their environment at start."""

from collections.abc import Mapping

from portal.accounts.models import Project
from portal.accounts.noted import NotedKind, register_noted
from portal.notebooks.culling import warn_of_budget
from portal.notebooks.gates import check_stop
from portal.notebooks.kinds import KIND
from portal.notebooks.models import Hub, Server
from portal.notebooks.presentation import PRESENTATION
from portal.notebooks.services.workspace_transfers import requests_of
from portal.notebooks.urls import node_address_of, variables_of
from portal.notebooks.workload_sync import is_notebook_server, sync_server
from portal.workloads.ports import (
    BudgetRule,
    Grouping,
    Kind,
    register_file_requests,
    register_kind,
)
from portal.workloads.retries import RetryRule
from portal.workloads.signals import WorkloadChanged, workload_changed
from slipway.schemas.accounts import Scope

_WARNED_S = 60.0


def _surroundings(*, workload_id: str, index: int) -> Mapping[str, str]:
    servers = Server.objects.filter(workload=workload_id)
    server = servers.select_related("workload", "project").first()
    if server is None or server.workload is None:
        return {}
    return variables_of(server, server.workload, node_address_of(server.workload))


def _noted_server(project: Project, path: str) -> tuple[str, str] | None:
    return Server.objects.of_project(project).filter(pk=path).values_list("pk", "name").first()


def _is_in_use() -> bool:
    """Return whether a Hub was ever registered: without one no server can be opened."""
    return Hub.objects.exists()


def _when_server_moved(news: WorkloadChanged) -> None:
    if is_notebook_server(news.kind):
        sync_server(news.workload_id)


# The memory of the kernels is lost when a server ends, so no server is restarted automatically.
NOTEBOOK = Kind(
    name=KIND,
    noun="notebook",
    retry=RetryRule(max_attempts=1, max_losses=0, on=frozenset()),
    stop_grace_s=10.0,
    warm="jupyterlab",
    keeps_warm=_is_in_use,
    check_stop=check_stop,
    scopes=(
        Scope.PROJECTS_READ,
        Scope.FILES_READ,
        Scope.FILES_WRITE,
        Scope.EXPERIMENTS_READ,
        Scope.EXPERIMENTS_WRITE,
        Scope.WORKLOADS_READ,
        Scope.WORKLOADS_WRITE,
    ),
    environment=_surroundings,
    budget=BudgetRule(warning_s=_WARNED_S, save=warn_of_budget),
    grouping=Grouping(noun="notebook"),
    presentation=PRESENTATION,
)
register_kind(NOTEBOOK)
register_file_requests(requests_of)
workload_changed.connect(_when_server_moved)
register_noted(
    NotedKind("notebook", "notebook server", "project_notebook", "notebooks", _noted_server)
)
