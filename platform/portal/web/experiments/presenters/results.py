"""The section Results of a run: galleries, tables, charts, event files, checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.models import Project
from portal.experiments.ports import Artifact, RunDetail
from portal.experiments.results.images import RASTER_TYPES, LoggedImage
from portal.experiments.services.results import RunResults, charts_of, evenly
from portal.web.experiments.presenters.media import download_url, media_url, signed_url

MOST_KEYS = 60
MOST_STEPS = 500
MOST_OF_A_STEP = 12


@dataclass(frozen=True)
class Gallery:
    """Images of one key. `steps` have the addresses of their images, the last one is shown first.

    `left_out` is a sentence on images that have no place in it.
    """

    key: str
    steps: Sequence[dict[str, Any]]
    left_out: str

    @property
    def last(self) -> dict[str, Any]:
        """The last step."""
        return self.steps[-1]


@dataclass(frozen=True)
class Picture:
    """An image that is no part of a series."""

    path: str
    url: str


def galleries(
    project_slug: str, run_id: str, images: dict[str, list[LoggedImage]]
) -> list[Gallery]:
    """Return a gallery for each of the first MOST_KEYS keys."""
    return [gallery(project_slug, run_id, key, images[key]) for key in sorted(images)[:MOST_KEYS]]


def gallery(project_slug: str, run_id: str, key: str, images: Sequence[LoggedImage]) -> Gallery:
    """Return the images of a key by step."""
    by_step: dict[int, list[LoggedImage]] = {}
    for image in images:
        by_step.setdefault(image.step, []).append(image)
    shown = evenly(sorted(by_step), MOST_STEPS)
    steps: list[dict[str, Any]] = [
        {
            "step": step,
            "images": [
                {
                    "src": media_url(project_slug, run_id, image.thumbnail),
                    "full": media_url(project_slug, run_id, image.path),
                    "download": download_url(project_slug, run_id, image.path),
                }
                for image in by_step[step][:MOST_OF_A_STEP]
            ],
        }
        for step in shown
    ]
    more = len(images) - sum(len(step["images"]) for step in steps)
    left_out = f"{more:,} more images of this key are among the artifacts." if more else ""
    return Gallery(key, steps, left_out)


def pictures_of(
    request: HttpRequest, project: Project, run: RunDetail, files: Sequence[Artifact]
) -> list[Picture]:
    """Return images that are no part of a series. SVG comes by a signed link, without an origin."""
    return [
        Picture(
            file.path,
            media_url(project.slug, run.facts.id, file.path)
            if file.name.rpartition(".")[2].lower() in RASTER_TYPES
            else signed_url(request, project, run, file),
        )
        for file in files
    ]


def results_context(
    request: HttpRequest, project: Project, run: RunDetail, results: RunResults
) -> dict[str, Any]:
    """Return what the template `results.html` shows."""
    limits = list(results.limits)
    if len(results.images) > MOST_KEYS:
        limits.append(f"{len(results.images) - MOST_KEYS:,} more keys of images are not shown.")
    return {
        "run": run,
        "results": results,
        "galleries": galleries(project.slug, run.facts.id, results.images),
        "pictures": pictures_of(request, project, run, results.pictures),
        "charts": charts_of(project_id=project.pk, run=run, files=results.charts),
        "limits": limits,
    }
