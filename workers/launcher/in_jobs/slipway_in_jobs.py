"""MLflow plug-in that is active inside jobs, loaded through MLflow's entry points.

A job has its run from the start, and MLflow refuses to continue that run once a script has called
`mlflow.set_experiment`. So the request for the run carries the experiment that the script selected,
and the portal moves the run there before it responds. Data that MLflow logs in the background is
sent before Python ends its threads, which MLflow 3.17 does not wait for. The SDK also stores a
sample of the data that the script logs as inputs, see `slipway.mlflow_inputs`.

This file must run on any Python that MLflow supports. It belongs to no package, because a package
could shadow the user's own modules.
"""

import os
import sys
import threading
from importlib import import_module

HEADER = "X-Slipway-Experiment"
_RUN = "MLFLOW_RUN_ID"


class JobHeaders:
    """Sends the selected experiment, until the job's run has been requested."""

    def __init__(self) -> None:
        self._waits = _RUN in os.environ
        self._watches = False

    def in_context(self) -> bool:
        """Return whether the job's run has not been started here yet."""
        if not self._watches:  # MLflow is fully imported only at its first request
            self._watches = True
            _watch_inputs()
        return self._waits

    def request_headers(self) -> dict[str, str]:
        """Return the header. MLflow takes the variable away, and then asks for the run at once."""
        self._waits = _RUN in os.environ
        experiment = os.environ.get("MLFLOW_EXPERIMENT_ID", "")
        return {HEADER: experiment} if experiment else {}


def _watch_inputs() -> None:
    ours = os.environ.get("MLFLOW_TRACKING_URI")
    if not ours:
        return
    try:
        import_module("slipway.mlflow_inputs").watch_inputs(ours)
    except Exception as error:  # noqa: BLE001 - a Python or an MLflow that the SDK does not know
        sys.stderr.write(f"[slipway] no input samples are recorded: {error}\n")


def _flush_metrics() -> None:
    mlflow = sys.modules.get("mlflow")
    if mlflow is None:
        return
    try:
        mlflow.flush_async_logging()
    except Exception as error:  # noqa: BLE001 - the script has finished
        sys.stderr.write(f"[slipway] the last metrics could not be sent: {error}\n")


threading._register_atexit(_flush_metrics)  # type: ignore[attr-defined]  # noqa: SLF001
