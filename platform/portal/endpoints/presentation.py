"""Presentation of replicas among workloads. People search for their endpoints."""

from collections.abc import Sequence

from portal.accounts.models import Project
from portal.accounts.principal import Principal
from portal.endpoints.models import Endpoint, Replica
from portal.workloads.presentation import PageAddress, Presentation, SearchHit


def _page_of(workload_id: str) -> PageAddress | None:
    replicas = Replica.objects.filter(workload=workload_id).values_list("endpoint__name", "pk")
    replica = replicas.first()
    return None if replica is None else PageAddress("project_endpoint_replica", replica)


def _search(
    *, principal: Principal, project: Project | None, text: str, limit: int
) -> Sequence[SearchHit]:
    endpoints = Endpoint.objects.present().filter(project__in=principal.projects().live())
    endpoints = endpoints.filter(name__icontains=text).select_related("project")
    if project is not None:
        endpoints = endpoints.filter(project=project)
    return [
        SearchHit(
            endpoint.name,
            "endpoint",
            endpoint.project,
            PageAddress("project_endpoint", (endpoint.name,)),
        )
        for endpoint in endpoints.order_by("-pk")[:limit]
    ]


PRESENTATION = Presentation(
    icon="broadcast", page_of=_page_of, search_noun="endpoints", search=_search
)
