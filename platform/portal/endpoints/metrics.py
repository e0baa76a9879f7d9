"""Prometheus metrics of endpoints: predictions summed over all gateways, from the database."""

from collections.abc import Iterator

import structlog
from django.db import DatabaseError
from django.db.models import Sum
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from portal.endpoints.models import Endpoint, Revision

log = structlog.get_logger(__name__)
_COUNTS = (
    *("answered", "refused", "failed", "fallback", "captured", "uncaptured"),
    *("mirrored", "unmirrored", "differed", "shadow_failed"),
)


class EndpointCollector(Collector):
    """Prometheus collector that queries the database on each scrape."""

    def describe(self) -> list[CounterMetricFamily]:
        """Return nothing, so that registering does not query the database."""
        return []

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield one counter for each endpoint and outcome."""
        family = CounterMetricFamily(
            "slipway_endpoint_predictions",
            "Predictions by outcome. Fallback: served by a standby. Uncaptured: served, but "
            "missing from monitoring.",
            labels=["endpoint", "outcome"],
        )
        revisions = Revision.objects.filter(endpoint__in=Endpoint.objects.present())
        # A sum must not have the name of a column.
        sums = {f"all_{name}": Sum(name) for name in _COUNTS}
        by_endpoint = revisions.order_by().values("endpoint__name").annotate(**sums)
        try:
            rows = list(by_endpoint.values_list("endpoint__name", *sums))
        except DatabaseError as error:
            log.warning("endpoint_metrics_not_read", reason=str(error)[:200])
            return
        for endpoint, *counts in rows:
            for name, count in zip(_COUNTS, counts, strict=True):
                family.add_metric([endpoint, name], count)
        yield family
