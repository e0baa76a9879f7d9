"""The picker of the editor: objects of the project that can be embedded, by a few letters."""

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from portal.accounts.gates import gated_project
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.core.errors import InvalidInput, NotFound
from portal.core.policy import guarded_by
from portal.endpoints.models import Endpoint
from portal.experiments.factories import tracker
from portal.experiments.services.artifacts import artifacts_of
from portal.experiments.services.saved_views import views_of
from portal.registry.catalog import list_versions, newest_models_matching
from portal.web.base.list_query import search_parameter
from portal.web.palette.objects import matching_runs
from portal.web.reports.forms import is_run_id
from portal.web.reports.views.changes import CREATE
from slipway.schemas.reports import MOST_CHART_RUNS, MOST_TABLE_COLUMNS

_MOST = 20
_MODELS, _VERSIONS = 6, 5
_MOST_FILES = 200
_MOST_METRICS = 200
Item = dict[str, Any]


@guarded_by(CREATE)
@require_safe
def project_report_pick(request: HttpRequest, project: str) -> JsonResponse:
    """Answer with the objects of one `kind` that match `q`, each with the fields of its block."""
    search = _SEARCHES.get(request.GET.get("kind", ""))
    if search is None:
        raise InvalidInput(
            "There is nothing of this kind to embed.",
            field="kind",
            next_step=f"Choose one of: {', '.join(_SEARCHES)}.",
        )
    text = search_parameter(request, "q")
    return JsonResponse({"items": list(search(request, gated_project(request), text))})


def _item(label: str, detail: str, **fields: object) -> Item:
    return {"label": label, "detail": detail, "fields": fields}


def _runs(_request: HttpRequest, project: Project, text: str) -> Iterable[Item]:
    for run in matching_runs({project.pk: project}, text, _MOST):
        name = run.name or run.run_uuid
        yield _item(name, f"{run.experiment.name} · {run.run_uuid[:8]}", run=run.run_uuid)


def _metrics(request: HttpRequest, project: Project, text: str) -> Iterable[Item]:
    ids = [it for it in request.GET.getlist("run")[:MOST_CHART_RUNS] if is_run_id(it)]
    runs = tracker().runs(project.pk, ids)
    keys = sorted({key for run in runs for key in run.metrics if text.lower() in key.lower()})
    return (_item(key, "", metric=key) for key in keys[:_MOST_METRICS])


def _views(request: HttpRequest, project: Project, text: str) -> Iterable[Item]:
    for view in views_of(project, require_principal(request).user):
        if text.lower() not in view.name.lower():
            continue
        query = parse_qs(view.query)
        first = {name: values[0] for name, values in query.items()}
        columns = [name for name in query.get("c", []) if name != "model"]
        yield _item(
            view.name,
            first.get("filter", ""),
            filter=first.get("filter", ""),
            search=first.get("q", ""),
            order=first.get("order", ""),
            columns=columns[:MOST_TABLE_COLUMNS],
            experiment=view.experiment_id,
        )


def _versions(_request: HttpRequest, project: Project, text: str) -> Iterable[Item]:
    for _, name in newest_models_matching([project.pk], text, limit=_MODELS):
        for version in list_versions(project.pk, name, limit=_VERSIONS).items:
            aliases = ", ".join(f"@{alias}" for alias in version.aliases)
            label = f"{name}, version {version.number}"
            yield _item(label, aliases, model=name, version=version.number)


def _endpoints(_request: HttpRequest, project: Project, text: str) -> Iterable[Item]:
    endpoints = Endpoint.objects.of_project(project).matching(text=text).order_by("-pk")
    return (_item(row.name, row.state, endpoint=row.name) for row in endpoints[:_MOST])


def _files(request: HttpRequest, project: Project, text: str) -> Iterable[Item]:
    run_id = request.GET.get("run", "")
    run = tracker().run(project.pk, run_id) if is_run_id(run_id) else None
    if run is None:
        return
    try:
        folder = request.GET.get("folder", "")
        entries = artifacts_of(project_id=project.pk, run=run, path=folder, most=_MOST_FILES)
    except NotFound:
        return
    for entry in entries:
        if text.lower() in entry.name.lower():
            field = "folder" if entry.is_folder else "path"
            yield _item(entry.name, "folder" if entry.is_folder else "", **{field: entry.path})


_SEARCHES: dict[str, Callable[[HttpRequest, Project, str], Iterable[Item]]] = {
    "run": _runs,
    "metric": _metrics,
    "view": _views,
    "model_version": _versions,
    "endpoint": _endpoints,
    "artifact": _files,
}
