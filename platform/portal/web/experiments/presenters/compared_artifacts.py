"""Artifacts of several runs side by side: images, charts, pictures, differences of tables."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest

from portal.accounts.models import Project
from portal.experiments.ports import RunDetail
from portal.experiments.results.tables import MOST_COMPARED as MOST_TABLES
from portal.experiments.services.artifacts import artifact_of
from portal.experiments.services.inspection import inspect_artifacts
from portal.experiments.services.results import charts_of, results_of, tables_tagged
from portal.web.experiments.presenters.results import Gallery, gallery, pictures_of
from portal.web.experiments.presenters.tables import PAGE_ROWS, start_of

MOST_RUNS = 8
MOST_KEYS = 6
KEY, TABLE = "tkey", "table"


@dataclass(frozen=True)
class ComparedImages:
    """Images of one key: a gallery for each run that has some, with the run's name."""

    key: str
    galleries: Sequence[tuple[RunDetail, Gallery]]

    @property
    def has_steps(self) -> bool:
        """True if there is more than one step to choose from."""
        return len({it["step"] for _, shown in self.galleries for it in shown.steps}) > 1


@dataclass(frozen=True)
class ComparedLine:
    """A row of one run. `cells` are (text, differs); `first` is true on the first run's line."""

    key: str
    run: RunDetail
    first: bool
    is_missing: bool
    cells: Sequence[tuple[str | None, bool]]


@dataclass(frozen=True)
class ComparedTable:
    """A page of the rows that differ. `rows` are those of `difference_of_tables`."""

    path: str
    runs: Sequence[RunDetail]
    columns: Sequence[str]
    key_columns: Sequence[str]
    key: str
    rows: Sequence[dict[str, Any]]
    differing: int
    total: int
    start: int

    @property
    def lines(self) -> Iterator[ComparedLine]:
        """The rows, with a line for each run."""
        for row in self.rows:
            for at, run in enumerate(self.runs):
                cells = [(cell["texts"][at], cell["differs"]) for cell in row["cells"]]
                is_missing = all(text is None for text, _ in cells)
                yield ComparedLine(row["key"], run, at == 0, is_missing, cells)

    @property
    def previous(self) -> int | None:
        """Start of the page before, None on the first one."""
        return max(0, self.start - PAGE_ROWS) if self.start else None

    @property
    def following(self) -> int | None:
        """Start of the page after, None on the last one."""
        end = self.start + len(self.rows)
        return end if end < self.differing else None


@dataclass(frozen=True)
class ComparedFiles:
    """Charts or pictures of one name in several runs: an item for each run that has one."""

    name: str
    items: Sequence[tuple[RunDetail, Any]]


@dataclass(frozen=True)
class ComparedResults:
    """Results that runs have in common, and the numbers of names that are not shown."""

    images: Sequence[ComparedImages]
    charts: Sequence[ComparedFiles]
    pictures: Sequence[ComparedFiles]
    more_keys: int
    more_files: int


def compared_results(
    request: HttpRequest, project: Project, runs: Sequence[RunDetail]
) -> ComparedResults:
    """Return images by key, logged charts and pictures of the runs side by side.

    Of each, MOST_KEYS names are shown, those of most runs first. Charts and pictures are shown if
    at least two runs have them.
    """
    results = [(run, results_of(project_id=project.pk, run=run)) for run in runs]
    keys, more_keys = _most_common([it.images for _, it in results], least=1)
    images = [
        ComparedImages(
            key,
            [
                (run, gallery(project.slug, run.facts.id, key, it.images[key]))
                for run, it in results
                if key in it.images
            ],
        )
        for key in keys
    ]
    files = [{file.path: file for file in it.pictures} for _, it in results]
    paths, more_pictures = _most_common(files, least=2)
    pictures = [
        ComparedFiles(
            path,
            [
                (run, pictures_of(request, project, run, [named[path]])[0])
                for run, named in zip(runs, files, strict=True)
                if path in named
            ],
        )
        for path in paths
    ]
    series = [
        {it.name: it for it in charts_of(project_id=project.pk, run=run, files=result.charts)}
        for run, result in results
    ]
    names, more_charts = _most_common(series, least=2)
    charts = [
        ComparedFiles(
            name, [(run, it[name]) for run, it in zip(runs, series, strict=True) if name in it]
        )
        for name in names
    ]
    return ComparedResults(images, charts, pictures, more_keys, more_pictures + more_charts)


def _most_common(named: Sequence[Mapping[str, Any]], *, least: int) -> tuple[list[str], int]:
    """Return MOST_KEYS names, those of most runs first, and the number of others."""
    counts = Counter(name for names in named for name in names)
    names = sorted(
        (name for name, count in counts.items() if count >= least),
        key=lambda name: (-counts[name], name),
    )
    return names[:MOST_KEYS], max(0, len(names) - MOST_KEYS)


def tables_in_common(runs: Sequence[RunDetail]) -> list[tuple[str, str]]:
    """Return the tables that at least two runs have, with the query that compares them."""
    paths: dict[str, list[str]] = {}
    for run in runs:
        for path in tables_tagged(run):
            paths.setdefault(path, []).append(run.facts.id)
    return [
        (path, urlencode([*(("run", run_id) for run_id in run_ids), (TABLE, path)]))
        for path, run_ids in sorted(paths.items())
        if len(run_ids) > 1 and path.endswith(".json")
    ]


def compared_table(
    request: HttpRequest, project: Project, runs: Sequence[RunDetail], path: str
) -> ComparedTable:
    """Return the rows in which a table of several runs differs. Raises InspectionRefused.

    Raises NotFound when a run has no such file.
    """
    runs = runs[:MOST_TABLES]
    files = [(run, artifact_of(project_id=project.pk, run=run, path=path)) for run in runs]
    key, start = request.GET.get(KEY, ""), start_of(request)
    values = inspect_artifacts(
        project_id=project.pk,
        files=files,
        task="difference",
        options={"key": key, "start": start, "length": PAGE_ROWS},
    )
    return ComparedTable(
        path=path,
        runs=runs,
        columns=values["columns"],
        key_columns=values["key_columns"],
        key=key,
        rows=values["rows"],
        differing=values["differing"],
        total=values["total"],
        start=start,
    )
