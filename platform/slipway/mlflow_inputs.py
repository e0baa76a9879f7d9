"""Rows of the data that a run names by MLflow's own calls, so that its predictions can be watched.

MLflow keeps the columns of an input dataset and none of its rows. Where a data frame or an array is
named, by `mlflow.log_input` or by autologging, a sample of it becomes an artifact of the run, as
`slipway.track.data` makes one, and a model that such a run logs predicts some of these rows, see
`slipway.mlflow_golden`. That happens in Slipway's jobs and notebooks, and wherever this SDK
is installed and MLflow talks to a Slipway that this machine is signed in to, see
`slipway.mlflow_plugin`. SLIPWAY_SAMPLE_INPUTS=0 switches it off.

This module and what it imports of ours need the standard library alone: the environment of a job
may lack every package of the SDK, and its models are monitored all the same.
"""

import functools
import inspect
import json
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from slipway.mlflow_golden import Proofs
from slipway.samples import file_of, sample_of

__all__ = ["watch_inputs"]

_OFF = {"0", "false", "no", "off"}
_CONTEXT = "mlflow.data.context"
_MOST_OF_A_RUN = 3
_MOST_HELD = 4
_WATCHED = "_slipway_samples"


def watch_inputs(*ours: str) -> None:
    """Log a sample of each data frame and array that MLflow names as an input as an artifact.

    Only for runs whose tracking URI begins as one of `ours` does. No other server gets any rows.
    Errors here are logged in a line, and never fail the script.
    """
    clients = import_module("mlflow.tracking.client").MlflowClient
    dataset = import_module("mlflow.data.dataset").Dataset
    named, to_entity = clients.log_inputs, dataset._to_mlflow_entity  # noqa: SLF001
    if os.environ.get("SLIPWAY_SAMPLE_INPUTS", "").lower() in _OFF or hasattr(named, _WATCHED):
        return
    kept = _Samples()
    signature = inspect.signature(named)
    models = import_module("mlflow.models").Model
    log_model = models.log.__func__

    @functools.wraps(to_entity)
    def sampled(self: Any) -> Any:
        entity = to_entity(self)
        with _report_failure():
            kept.add((entity.name, entity.digest), self)
        return entity

    @functools.wraps(named)
    def logged(*arguments: Any, **more: Any) -> Any:
        answer = named(*arguments, **more)
        with _report_failure():
            values = signature.bind(*arguments, **more).arguments
            client = values["self"]
            if client.tracking_uri.startswith(ours):
                for dataset in values.get("datasets") or ():
                    kept.log(client, values["run_id"], dataset)
        return answer

    @functools.wraps(log_model)
    def made(*arguments: Any, **more: Any) -> Any:
        model = log_model(*arguments, **more)
        with _report_failure("golden predictions were"):
            if import_module("mlflow").get_tracking_uri().startswith(ours):
                kept.proofs.record_model(clients(), model)
        return model

    setattr(logged, _WATCHED, True)
    clients.log_inputs = logged
    models.log = classmethod(made)
    dataset._to_mlflow_entity = sampled  # noqa: SLF001


class _Samples:
    """Samples between the moment a dataset is described and the one it is logged.

    Autologging has let go of the rows by then.
    """

    def __init__(self) -> None:
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._done: dict[str, set[str]] = {}
        self.proofs = Proofs()

    def add(self, key: tuple[str, str], source: Any) -> None:
        rows, truth, predictions = _rows_of(source)
        if key in self._texts or rows is None or not len(rows):
            return
        sample = sample_of(rows, predictions, truth)
        self._texts[key] = json.dumps(sample, allow_nan=False, separators=(",", ":"))
        with _report_failure("golden predictions were"):
            self.proofs.add_rows(key, rows)
        while len(self._texts) > _MOST_HELD:
            self._texts.popitem(last=False)

    def log(self, client: Any, run_id: str, named: Any) -> None:
        done = self._done.setdefault(run_id, set())
        tags = {tag.key: tag.value for tag in named.tags}
        context = tags.get(_CONTEXT) or "data"
        key = (named.dataset.name, named.dataset.digest)
        text = self._texts.get(key)
        if text is not None and context not in done and len(done) < _MOST_OF_A_RUN:
            done.add(context)
            client.log_text(run_id, text, file_of(f"mlflow-{context}"))
        with _report_failure("golden predictions were"):
            self.proofs.named(client, run_id, key)


@contextmanager
def _report_failure(lost: str = "sample of the run's inputs was") -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the script must continue
        sys.stderr.write(f"[slipway] no {lost} kept: {str(error)[:300]}\n")


def _rows_of(source: Any) -> tuple[Any, Any, Any]:
    """Return the inputs, the truth and the predictions of a PandasDataset or a NumpyDataset."""
    frame: Any = getattr(source, "df", None)
    if hasattr(frame, "iloc"):
        names = [source.targets, getattr(source, "predictions", None)]
        truth, predictions = (None if name is None else frame[name] for name in names)
        return frame.drop(columns=[name for name in names if name is not None]), truth, predictions
    features, targets = getattr(source, "features", None), getattr(source, "targets", None)
    if not hasattr(features, "shape"):
        return None, None, None
    return features, targets if hasattr(targets, "shape") else None, None
