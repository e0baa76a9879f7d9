"""Pages of the documentation, for the project of the reader."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

import slipway
from portal.accounts.gates import SignedIn
from portal.accounts.models import Project
from portal.accounts.principal import Principal, require_principal
from portal.core.errors import NotFound
from portal.core.policy import guarded_by
from portal.web.base.list_query import search_parameter
from portal.web.docs.catalog import GROUPS
from portal.web.docs.markdown_pages import RenderedPage, html_for, rendered, title_of
from portal.web.docs.search import MOST_HITS, search_docs


@guarded_by(SignedIn())
@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """List the pages, or the sections that match `q`."""
    query = search_parameter(request, "q")
    context = _context(request) | {
        "query": query,
        "hits": search_docs(query),
        "most_hits": MOST_HITS,
        "cards": [] if query else _cards(),
    }
    return render(request, "web/docs/index.html", context)


@guarded_by(SignedIn())
@require_safe
def docs_page(request: HttpRequest, page: str) -> HttpResponse:
    """Show a page, with the addresses of this installation and the reader's project."""
    document = rendered(page)
    if document is None:
        raise NotFound
    context = _context(request)
    project = context["docs_project"]
    context |= {
        "document": document,
        "html": html_for(document, project.slug if project else None),
        "headings": [heading for heading in document.headings if heading.level <= 3],
    }
    return render(request, "web/docs/page.html", context)


def _cards() -> list[tuple[str, list[RenderedPage]]]:
    """Return the pages of each group, with their summaries."""
    return [
        (title, [page for file in files if (page := rendered(file.slug)) is not None])
        for title, files in GROUPS
    ]


def _context(request: HttpRequest) -> dict[str, Any]:
    groups = [
        (title, [(file.slug, title_of(file.slug)) for file in files if file.file.is_file()])
        for title, files in GROUPS
    ]
    project = _project_of(require_principal(request), search_parameter(request, "project"))
    return {
        "groups": groups,
        "docs_project": project,
        "docs_query": f"?project={project.slug}" if project else "",
        "version": slipway.__version__,
        "area": "docs",
    }


def _project_of(principal: Principal, slug: str) -> Project | None:
    """Return the project for snippets: the one in the URL, or the newest of the reader."""
    projects = principal.projects().live().order_by("-pk")
    chosen = projects.filter(slug=slug).first() if slug else None
    return chosen or projects.first()
