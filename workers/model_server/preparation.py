"""A loaded model made ready: warm, its golden predictions checked, and its batching known."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from slipway.schemas.serving import BatchingReport, GoldenPrediction, ReplicaSpec
from workers.model_server.batching import needs_proof, prove, report_of
from workers.model_server.codecs import Model
from workers.model_server.engine import Engine
from workers.model_server.files import fetch_files
from workers.model_server.formats import open_model
from workers.model_server.golden import check_golden, warm_up

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedModel:
    """A model that is ready to predict. `max_rows` is the largest number of rows in one call."""

    model: Model
    engine: Engine
    batching: BatchingReport
    max_rows: int


def prepare_model(
    spec: ReplicaSpec, model: Model, *, samples: Sequence[GoldenPrediction] = ()
) -> PreparedModel:
    """Warm the model, check its golden predictions, and find out whether requests may be merged.

    `samples` are requests that serve for the proof where no golden predictions are recorded.
    Raises NotReady.
    """
    engine = _engine(spec, model)
    proof = None
    if needs_proof(spec.batching.mode):
        proof = prove(engine, model, spec.golden or samples, max_rows=spec.batching.max_rows)
        if proof.has_changed:
            # The model stores state from its requests, so serve a freshly loaded one.
            engine.close()
            model = open_model(spec, fetch_files(spec))
            engine = _engine(spec, model)
    report = report_of(proof, spec.batching.mode)
    log.info("batching: %s. %s", report.mode.value, report.reason)
    max_rows = proof.max_rows if proof else spec.batching.max_rows
    engine.set_batching(report.mode, max_rows)
    return PreparedModel(model, engine, report, max_rows)


def _engine(spec: ReplicaSpec, model: Model) -> Engine:
    engine = Engine(
        model, name=spec.endpoint, version=spec.model_version, max_rows=spec.batching.max_rows
    )
    engine.forward_ms = warm_up(engine, model.signature, spec.golden)
    check_golden(engine, spec.golden)
    return engine
