"""`slipway-batch-predict`: the job of one batch prediction, described by the portal."""

import logging
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import slipway
from slipway import job
from slipway.client import Client
from slipway.datasets import Dataset
from slipway.errors import SlipwayError
from slipway.retries import Retries
from slipway.schemas.batch_predictions import OutputStatus, PredictionOutput, PredictionSpec
from slipway.schemas.batch_predictions import rows_text as text_of
from slipway.schemas.datasets import VersionState
from slipway.schemas.serving import Batching, BatchingMode, GoldenPrediction, ReplicaSpec
from slipway.schemas.truncation import shorten
from workers.batch_predictor.predictor import MAX_ROWS, Predictor, sample_requests
from workers.batch_predictor.spool import NameTaken, Spool
from workers.model_server.errors import NotReady
from workers.model_server.files import fetch_files
from workers.model_server.formats import open_model
from workers.model_server.memory import retain_freed_memory
from workers.model_server.preparation import PreparedModel, prepare_model

# Long enough for a portal that restarts: a prediction of hours must not be lost by that.
_PATIENCE: Final = Retries(attempts=60, first_wait_s=0.25, longest_wait_s=30.0)
_CALL_BYTES: Final = 8 * 1024**2
_LOOK_EVERY_S: Final = 0.5
_CHECKED_WITHIN_S: Final = 1800.0
_LINE_EVERY_S: Final = 30.0
_FAILURE_CHARACTERS: Final = 2000


@dataclass
class _Counts:
    rows: int = 0
    failed: int = 0
    first_failure: str = ""


def main() -> int:
    """Predict the table and report the output, once a job whatever happens. Returns the status."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)-7s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    retain_freed_memory()
    here = job.current()
    if here.id is None or here.project is None:
        sys.stderr.write("This program is the job of a batch prediction.\n")
        return 2
    try:
        with Client(retries=_PATIENCE) as client:
            batch = _Batch(client, here.project, here.id)
            status = batch.status()
            if status.state in (None, VersionState.REFUSED):
                batch.predict()
            return batch.wait_for_version()
    except (NotReady, SlipwayError, _Refused) as error:
        step = getattr(error, "next_step", None)
        sys.exit(f"{error} {step}" if step and step not in str(error) else str(error))


class _Refused(Exception):
    """The prediction ends here. The message says why and what to do."""


class _Batch:
    """One batch prediction, at the portal and here."""

    def __init__(self, client: Client, project: str, job_id: str) -> None:
        self._client, self._project, self._job = client, project, job_id

    def status(self) -> OutputStatus:
        """Return what the portal knows of the output."""
        return self._client.batch_predictions.output(self._job, project=self._project)

    def predict(self) -> None:
        """Predict all rows, upload the result and report it."""
        spec = self._client.batch_predictions.spec(self._job, project=self._project)
        data = slipway.dataset(spec.data, project=self._project, client=self._client)
        prepared = self._prepare(spec, data)
        predictor = Predictor(prepared, spec.columns)
        _say(
            f"{spec.model} version {spec.version} predicts {spec.data}, "
            f"{text_of(predictor.rows_per_call)} in a call. {prepared.batching.reason}"
        )
        counts, began = _Counts(), time.monotonic()
        with tempfile.TemporaryDirectory(prefix="slipway-batch-") as folder:
            path = Path(folder, "predictions.parquet")
            spool = Spool(Path(folder, "spool"), spec.keep, has_errors=spec.on_error == "skip")
            _predict_rows(spec, data, predictor, spool, counts)
            seconds = time.monotonic() - began
            _say(
                f"{text_of(counts.rows)} predicted in {seconds:.1f} s"
                f"{f', {counts.failed:,} of them failed' if counts.failed else ''}."
            )
            if predictor.has_infinities:
                _say("The model returned infinite numbers. They are missing in the output.")
            try:
                spool.write(path)
            except NameTaken as error:
                raise _Refused(
                    f"The table has a column {error} already, which the predictions need. Leave "
                    "it out: name the columns to keep with --keep."
                ) from None
            draft = self._client.datasets.upload_draft(
                spec.output, path, project=self._project, note=spec.note
            )
        output = PredictionOutput(
            draft=draft.id,
            rows=counts.rows,
            failed_rows=counts.failed,
            seconds=round(seconds, 3),
            rows_per_call=predictor.rows_per_call,
            batching=shorten(prepared.batching.reason, 1000),
            first_failure=counts.first_failure,
        )
        self._client.batch_predictions.report(self._job, output, project=self._project)

    def _prepare(self, spec: PredictionSpec, data: Dataset) -> PreparedModel:
        replica = _replica_spec(spec, self._client.url, self._project, self._job)
        model = open_model(replica, fetch_files(replica))
        samples: Sequence[GoldenPrediction] = ()
        if not spec.golden and spec.batching in (None, BatchingMode.ROWS):
            first = next(_chunks(data, spec.table), None)
            samples = sample_requests(first, spec.columns) if first is not None else ()
        return prepare_model(replica, model, samples=samples)

    def wait_for_version(self) -> int:
        """Wait until the portal has checked the version, and return the exit status."""
        until = time.monotonic() + _CHECKED_WITHIN_S
        while time.monotonic() < until:
            status = self.status()
            if status.reference is not None:
                _say(f"The predictions are {status.reference}.")
                return 0
            if status.state is VersionState.REFUSED:
                raise _Refused(f"The output was refused. {status.reason}")
            time.sleep(_LOOK_EVERY_S)
        raise _Refused("The output is still being checked. Ask an administrator to check Celery.")


def _predict_rows(
    spec: PredictionSpec, data: Dataset, predictor: Predictor, spool: Spool, counts: _Counts
) -> None:
    """Predict the table chunk by chunk. Raises _Refused at a bad row, unless they are skipped."""
    line_at = time.monotonic() + _LINE_EVERY_S
    for rows in _chunks(data, spec.table):
        results = predictor.predict(rows)
        for at, result in enumerate(results, start=counts.rows + 1):
            if not result.error:
                continue
            counts.failed += 1
            failure = f"Row {at:,} of {spec.table} in {spec.data}: {result.error}"
            counts.first_failure = counts.first_failure or shorten(failure, _FAILURE_CHARACTERS)
            if spec.on_error == "stop":
                raise _Refused(
                    f"{failure} Correct the row and push a new version, or skip such rows "
                    "(--on-error skip)."
                )
        counts.rows += rows.num_rows
        spool.add(rows, results)
        job.report_step(counts.rows)
        if time.monotonic() >= line_at:
            _say(f"{text_of(counts.rows)} predicted.")
            line_at = time.monotonic() + _LINE_EVERY_S
    if counts.failed and counts.failed == counts.rows:
        raise _Refused(f"Every row failed. {counts.first_failure}")


def _chunks(data: Dataset, table: str) -> Iterator[Any]:
    """Yield the rows of a table in record batches of bounded size, none of them empty."""
    for batch in data.batches(table):
        if not batch.num_rows:
            continue
        row_bytes = max(1, batch.nbytes // batch.num_rows)
        most = max(1, min(MAX_ROWS, _CALL_BYTES // row_bytes))
        for start in range(0, batch.num_rows, most):
            yield batch.slice(start, most)


def _replica_spec(spec: PredictionSpec, url: str, project: str, job_id: str) -> ReplicaSpec:
    """Return a description of the model as a replica gets it, so that it is loaded alike."""
    base = f"{url}/api/v1/projects/{project}/batch-predictions/{job_id}/files"
    files = [
        file.model_copy(update={"url": f"{base}/{number}"})
        for number, file in enumerate(spec.files)
    ]
    return ReplicaSpec(
        replica_id=job_id,
        endpoint_id=job_id,
        endpoint="batch",
        revision_id=job_id,
        model=spec.model,
        model_version=spec.version,
        format=spec.format,
        model_dir="model",
        entry=spec.entry,
        files=files,
        signature=spec.signature,
        golden=spec.golden,
        batching=Batching(max_rows=MAX_ROWS, mode=spec.batching),
        secret=secrets.token_hex(16),
        token=os.environ.get("SLIPWAY_TOKEN"),
    )


def _say(line: str) -> None:
    sys.stdout.write(f"[slipway] {line}\n")


if __name__ == "__main__":
    sys.exit(main())
