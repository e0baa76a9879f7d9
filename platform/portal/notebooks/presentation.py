"""Presentation of notebook servers among workloads. Each start of a server is a workload."""

from collections.abc import Sequence

from portal.accounts.models import Project
from portal.accounts.principal import Principal
from portal.notebooks.models import Server, ServerRun
from portal.workloads.presentation import PageAddress, Presentation, SearchHit


def _page_of(workload_id: str) -> PageAddress | None:
    runs = ServerRun.objects.filter(workload=workload_id)
    server_id = runs.values_list("server_id", flat=True).first()
    return None if server_id is None else PageAddress("project_notebook", (server_id,))


def _search(
    *, principal: Principal, project: Project | None, text: str, limit: int
) -> Sequence[SearchHit]:
    servers = Server.objects.filter(project__in=principal.projects().live())
    servers = servers.filter(name__icontains=text).select_related("project")
    if project is not None:
        servers = servers.filter(project=project)
    return [
        SearchHit(
            server.name, "notebook", server.project, PageAddress("project_notebook", (server.pk,))
        )
        for server in servers.order_by("-pk")[:limit]
    ]


PRESENTATION = Presentation(
    icon="notebook", page_of=_page_of, search_noun="notebooks", search=_search
)
