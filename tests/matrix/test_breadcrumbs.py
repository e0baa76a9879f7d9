"""Every page of a project links to the pages above it, and whoever opens it can open those."""

import re
from html import unescape

import pytest
from django.test import Client

from portal.web.base.breadcrumbs import LEVELS, PARENTS
from tests.matrix import table
from tests.matrix.actors import Cast
from tests.matrix.world import values_for
from tests.portal.web.reading import html_of
from tests.routes import Route, routes
from tests.turns import in_turns

_TRAIL = re.compile(r'<nav aria-label="Breadcrumbs">(.*?)</nav>', re.DOTALL)
_LINK = re.compile(r'<a href="([^"]+)">([^<]*)</a>')


def _pages(column: str, without: str = "") -> list[Route]:
    """Return the pages of projects that a column may open, without those of another one."""
    rows = table.read()
    return [
        route
        for route in routes()
        if route.template.startswith("/p/")
        and not route.template.endswith("/events")
        and rows[route.template, "GET"][column] == "200"
        and not (without and rows[route.template, "GET"][without] == "200")
    ]


@pytest.mark.thorough
def test_breadcrumbs_of_every_page_of_a_project_open_for_its_readers(cast: Cast) -> None:
    faults = []
    for user, pages in (
        (cast.world.people.vera, _pages("vwr")),
        (cast.world.people.alice, _pages("own", without="vwr")),
    ):
        client = Client(headers={"Accept": "text/html"})
        client.force_login(user)
        links: set[str] = set()
        for route in in_turns(pages, user.name, one_in=6):
            answer = client.get(route.path(**values_for(route, cast.world.own)))
            if answer.streaming or 'class="shell"' not in html_of(answer):
                continue
            trail = _TRAIL.search(html_of(answer))
            crumbs = _LINK.findall(trail.group(1)) if trail else []
            if not crumbs or crumbs[0] != ("/projects", "Projects"):
                faults.append(f"{route.template} ({route.name}) has no breadcrumbs: {crumbs}")
            links |= {unescape(url) for url, _label in crumbs}
            faults += [
                f"{route.template} calls a page {label!r}"
                for _url, label in crumbs
                if not label.strip() or re.match(r"[a-z]{2,5}_[0-9a-z]{26}$", label)
            ]
        faults += [
            f"{user.name} cannot open {link}"
            for link in sorted(links)
            if client.get(link, follow=True).status_code != 200
        ]
    assert faults == []


def test_every_line_of_the_table_is_a_page_there_is() -> None:
    names = {route.name for route in routes()}
    assert not ({*PARENTS, *LEVELS} - names)
    assert {*PARENTS.values()} == {*LEVELS}
