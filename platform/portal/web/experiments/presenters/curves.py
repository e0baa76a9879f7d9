"""Charts of the metrics of runs: which runs, which metrics, and what they can be grouped by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from portal.experiments.ports import RunFacts

MOST_CHARTS = 24
MOST_GROUPS = 50


@dataclass(frozen=True)
class Curves:
    """The charts of a page. `runs` have the values of the parameters in `groups`.

    `charted` of the `metrics` have a chart unless the address of the page names others.
    """

    runs: Sequence[dict[str, Any]]
    metrics: Sequence[str]
    charted: Sequence[str]
    groups: Sequence[str] = ()
    live: bool = False

    @property
    def uncharted(self) -> int:
        """Number of metrics without a chart, unless the address names others."""
        return len(self.metrics) - len(self.charted)


def curves_of(
    project_slug: str,
    runs: Sequence[RunFacts],
    metrics: Sequence[str],
    *,
    charts: int = MOST_CHARTS,
    groups: Sequence[str] = (),
    live: bool = False,
) -> Curves:
    """Return the charts of these runs, the first `charts` metrics shown."""
    by = groups[:MOST_GROUPS]
    return Curves(
        runs=[
            {
                "id": run.id,
                "name": run.name,
                "url": reverse("project_run", args=[project_slug, run.id]),
                "params": {name: run.params[name] for name in by if name in run.params},
            }
            for run in runs
        ],
        metrics=list(metrics),
        charted=list(metrics)[: min(charts, MOST_CHARTS)],
        groups=by,
        live=live,
    )
