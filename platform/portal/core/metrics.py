"""Prometheus metrics of every process of the portal."""

from prometheus_client import CollectorRegistry, Counter, Histogram

# Metrics of the whole installation, from the database. Only the portal exposes them.
INSTALLATION = CollectorRegistry()

HTTP_REQUESTS = Counter(
    "slipway_http_requests_total", "HTTP requests served.", ["method", "route", "status"]
)
HTTP_SECONDS = Histogram(
    "slipway_http_request_seconds",
    "Seconds from the first byte of a request to its response.",
    ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
