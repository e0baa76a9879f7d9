"""Batch predictions: datasets predicted with a version of a model, by jobs."""

import time
from collections.abc import Sequence

from slipway.connection import Connection, address
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.batch_predictions import (
    BatchPredictionIn,
    BatchPredictionOut,
    BatchPredictionQuote,
    OutputStatus,
    PredictionOutput,
    PredictionSpec,
)

_FIRST_LOOK_S, _LATER_LOOKS_S = 0.2, 5.0


class BatchPredictions:
    """The batch predictions of a project. `job` is the id of one, which is that of its job."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, job: str, *, project: str) -> str:
        """Return the address of the page of a batch prediction, for a browser."""
        return f"{self._connection.url}{address('p', project, 'batch-predictions', job)}"

    def list(self, *, project: str, search: str | None = None) -> Pages[BatchPredictionOut]:
        """List batch predictions, newest first. `search` matches model, data and output."""
        segments = ("projects", project, "batch-predictions")
        return Pages(self._connection, segments, PageOf[BatchPredictionOut], {"q": search})

    def get(self, job: str, *, project: str) -> BatchPredictionOut:
        """Return one batch prediction."""
        return self._connection.fetch(BatchPredictionOut, "GET", *_path(project, job))

    def create(
        self,
        model: str,
        *,
        project: str,
        data: str,
        output: str,
        version: str | int | None = None,
        table: str | None = None,
        keep: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        on_error: str | None = None,
        **options: object,
    ) -> BatchPredictionOut:
        """Submit the job that predicts `data` (`sales:3`) and makes a version of `output`.

        `version` is a number, an alias or a stage, by default the latest. `options` are
        `environment`, `name`, `tier`, `pool`, `priority`, `max_attempts`, `preemptible`,
        `max_hours` and `tags`, as of a job. Raises InvalidInput if the data do not fit the
        signature of the model.
        """
        body = _body(model, version, data, output, table, keep, columns, on_error, options)
        segments = ("projects", project, "batch-predictions")
        return self._connection.fetch(BatchPredictionOut, "POST", *segments, body=body)

    def quote(
        self,
        model: str,
        *,
        project: str,
        data: str,
        output: str,
        version: str | int | None = None,
        table: str | None = None,
        keep: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        on_error: str | None = None,
        **options: object,
    ) -> BatchPredictionQuote:
        """Return the price, and the versions in use. Nothing is started. See `create`."""
        body = _body(model, version, data, output, table, keep, columns, on_error, options)
        segments = ("projects", project, "batch-predictions", "quote")
        return self._connection.fetch(BatchPredictionQuote, "POST", *segments, body=body)

    def wait(self, job: str, *, project: str, timeout_s: float | None = None) -> BatchPredictionOut:
        """Wait until the job has ended, and return the batch prediction. Raises TimeoutError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = _FIRST_LOOK_S
        while True:
            prediction = self.get(job, project=project)
            if prediction.state.is_final:
                return prediction
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"The batch prediction {job} has not ended.")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LATER_LOOKS_S)

    def spec(self, job: str, *, project: str) -> PredictionSpec:
        """Return what the job has to do. Only the job itself may read it."""
        return self._connection.fetch(PredictionSpec, "GET", *_path(project, job), "spec")

    def output(self, job: str, *, project: str) -> OutputStatus:
        """Return the state of the output. Only the job itself may read it."""
        return self._connection.fetch(OutputStatus, "GET", *_path(project, job), "output")

    def report(self, job: str, output: PredictionOutput, *, project: str) -> OutputStatus:
        """Report the draft with the predictions, once a job. Only the job itself may."""
        segments = (*_path(project, job), "output")
        return self._connection.fetch(OutputStatus, "PUT", *segments, body=output)


def _body(
    model: str,
    version: str | int | None,
    data: str,
    output: str,
    table: str | None,
    keep: Sequence[str] | None,
    columns: Sequence[str] | None,
    on_error: str | None,
    options: dict[str, object],
) -> BatchPredictionIn:
    return build(
        BatchPredictionIn,
        model=model,
        version=None if version is None else str(version),
        data=data,
        output=output,
        table=table,
        keep=None if keep is None else list(keep),
        columns=None if columns is None else list(columns),
        on_error=on_error,
        **options,
    )


def _path(project: str, job: str) -> tuple[str, ...]:
    return ("projects", project, "batch-predictions", job)
