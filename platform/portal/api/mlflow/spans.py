"""Checks of OpenTelemetry spans, which MLflow accepts unchecked.

The protocol is OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/#otlphttp), with MLflow's
two headers, which name the experiment of the spans and the run that their traces belong to.
"""

import zlib
from collections.abc import Mapping

from portal.api.mlflow.answers import Refusal, invalid, missing
from portal.api.mlflow.request_checks import LARGEST_JSON, too_large
from portal.experiments.adapters.mlflow.ownership import belongs_to_project, default_experiments

SPANS = "/v1/traces"
_EXPERIMENT = "x-mlflow-experiment-id"
_RUN = "x-mlflow-run-id"
_DEFAULT = "0"
# 32 + the largest window: zlib detects gzip and zlib headers.
_ANY_WRAPPING = 47


def checked_headers(project_id: str, given: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return MLflow's headers if their objects belong to the project. Raises Refusal."""
    experiment = given.get(_EXPERIMENT.encode(), b"").decode("latin1")
    if not experiment:
        raise invalid(f"Name the experiment of the spans in the header {_EXPERIMENT}.")
    if experiment == _DEFAULT:
        experiment = str(default_experiments.of(project_id))
    elif not belongs_to_project(project_id, "experiment", experiment):
        raise missing(f"There is no experiment {experiment[:64]!r} in this project.")
    run = given.get(_RUN.encode(), b"").decode("latin1")
    if run and not belongs_to_project(project_id, "run", run):
        raise missing(f"There is no run {run[:64]!r} in this project.")
    return {_EXPERIMENT: experiment} | ({_RUN: run} if run else {})


def unpacked(body: bytes, encoding: str) -> bytes:
    """Return the decompressed body. Raises Refusal if it is too large."""
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise Refusal(
            415,
            "INVALID_PARAMETER_VALUE",
            "Send spans uncompressed, or compressed with gzip or deflate.",
        )
    unpacking = zlib.decompressobj(_ANY_WRAPPING)
    try:
        content = unpacking.decompress(body, LARGEST_JSON + 1)
    except zlib.error:
        raise invalid(f"The body is not valid {encoding}.") from None
    if len(content) > LARGEST_JSON:
        raise too_large(LARGEST_JSON)
    return content
