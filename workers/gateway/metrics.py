"""Prometheus metrics of the gateway, including uncaptured predictions and standby responses."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from slipway.schemas.serving import CaptureCounters
from workers.gateway.revision import Revision
from workers.gateway.routing import Endpoint

_OUTCOMES = ("answered", "refused", "failed", "retried", "fallback")
_CAPTURES = ("captured", "uncaptured")
_COPIES = ("mirrored", "unmirrored", "differed", "shadow_failed")
_NOT_ROUTED = ("unauthorized", "rate_limited", "too_large", "shed", "unavailable", "timed_out")
_OF_REVISION = ["endpoint", "revision", "model_version"]


class GatewayCollector(Collector):
    """Prometheus collector that reads the counters of endpoints at each scrape."""

    def __init__(
        self, endpoints: Callable[[], Iterable[Endpoint]], capture: CaptureCounters
    ) -> None:
        self._endpoints = endpoints
        self._capture = capture

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield counters since the start of this process."""
        # Copies: the event loop changes them while this thread reads.
        endpoints = list(self._endpoints())
        revisions = [
            revision for endpoint in endpoints for revision in list(endpoint.revisions.values())
        ]
        yield _by_revision(
            revisions,
            "slipway_gateway_predictions",
            "Predictions by outcome; fallback: served by a standby.",
            _OUTCOMES,
        )
        yield _by_revision(
            revisions,
            "slipway_gateway_captures",
            "Predictions that were captured, and those that should have been.",
            _CAPTURES,
        )
        yield _by_revision(
            revisions,
            "slipway_gateway_shadow_copies",
            "Predictions mirrored to a shadow; unmirrored: skipped.",
            _COPIES,
        )
        refused = CounterMetricFamily(
            "slipway_gateway_not_routed",
            "Requests rejected before a revision, by reason.",
            labels=["endpoint", "reason"],
        )
        for endpoint in endpoints:
            for reason in _NOT_ROUTED:
                count = getattr(endpoint.count, reason)
                refused.add_metric([endpoint.route.name, reason], count)
        yield refused
        yield GaugeMetricFamily(
            "slipway_gateway_capture_waiting_bytes",
            "Bytes of captured predictions that are not in Parquet yet.",
            value=self._capture.waiting_bytes,
        )
        yield GaugeMetricFamily(
            "slipway_gateway_capture_fails",
            "1 while predictions are served but not captured.",
            value=bool(self._capture.reason),
        )


def _by_revision(
    revisions: list[Revision], name: str, text: str, counts: tuple[str, ...]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[*_OF_REVISION, "outcome"])
    for revision in revisions:
        route = revision.route
        labels = [revision.endpoint.route.name, route.id, route.model_version]
        for count in counts:
            family.add_metric([*labels, count], getattr(revision.count, count))
    return family
