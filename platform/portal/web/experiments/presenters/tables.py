"""Tables of `mlflow.log_table` on pages: the rows that the address asks for."""

from dataclasses import dataclass

from django.http import HttpRequest

from portal.accounts.models import Project
from portal.experiments.ports import Artifact, RunDetail
from portal.experiments.services.inspection import inspect_artifacts
from portal.web.experiments.presenters.media import download_url, media_url

PAGE_ROWS = 50
_LAST_ROW = 10**9
# In the address, apart from the names that other parts of the page use there.
SORT, ORDER, TEXT, COLUMN, START = "tsort", "torder", "tq", "tin", "tfrom"


@dataclass(frozen=True)
class LoggedTable:
    """A page of a table. `headings` are (name, query that sorts by it, aria-sort or "").

    `rows` have cells of (kind, text, address of an image).
    """

    headings: list[tuple[str, str, str]]
    rows: list[list[tuple[str, str, str, str]]]
    columns: list[str]
    text: str
    column: str
    sort: str
    order: str
    start: int
    matching: int
    total: int
    more_columns: int

    @property
    def first(self) -> int:
        """Number of the first row of the page."""
        return self.start + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """Number of the last row of the page."""
        return self.start + len(self.rows)

    @property
    def previous(self) -> int | None:
        """Start of the page before, None on the first one."""
        return max(0, self.start - PAGE_ROWS) if self.start else None

    @property
    def following(self) -> int | None:
        """Start of the page after, None on the last one."""
        return self.last if self.last < self.matching else None


def start_of(request: HttpRequest, name: str = START) -> int:
    """Return the number of rows to skip, 0 for what is no number."""
    text = request.GET.get(name, "")
    return (
        min(int(text), _LAST_ROW) if text.isascii() and text.isdecimal() and len(text) < 12 else 0
    )


def logged_table(
    request: HttpRequest, *, project: Project, run: RunDetail, artifact: Artifact
) -> LoggedTable:
    """Return the page of a table that the address asks for. Raises InspectionRefused."""
    get = request.GET
    sort, order, start = get.get(SORT, ""), get.get(ORDER, ""), start_of(request)
    text, column = get.get(TEXT, "")[:200], get.get(COLUMN, "")
    values = inspect_artifacts(
        project_id=project.pk,
        files=[(run, artifact)],
        task="table",
        options={
            "sort": sort,
            "descending": order == "desc",
            "text": text,
            "column": column,
            "start": start,
            "length": PAGE_ROWS,
        },
    )
    return LoggedTable(
        headings=[_heading(request, name, sort, order) for name in values["columns"]],
        rows=[[_cell(project.slug, run, *it) for it in row] for row in values["rows"]],
        columns=values["columns"],
        text=text,
        column=column,
        sort=sort,
        order=order,
        start=start,
        matching=values["matching"],
        total=values["total"],
        more_columns=values["more_columns"],
    )


def _heading(request: HttpRequest, name: str, sort: str, order: str) -> tuple[str, str, str]:
    is_sorted = name == sort
    aria = ("descending" if order == "desc" else "ascending") if is_sorted else ""
    query = request.GET.copy()
    query.pop(START, None)
    query.pop(ORDER, None)
    query[SORT] = name
    if is_sorted and order != "desc":
        query[ORDER] = "desc"
    return name, f"?{query.urlencode()}", aria


def _cell(project_slug: str, run: RunDetail, kind: str, text: str) -> tuple[str, str, str, str]:
    if kind != "image":
        return kind, text, "", ""
    run_id = run.facts.id
    return (
        kind,
        text,
        media_url(project_slug, run_id, text),
        download_url(project_slug, run_id, text),
    )
