"""Factories for this app's adapters."""

import os
import time
from functools import lru_cache
from typing import Any

from django.conf import settings

from portal.experiments.adapters.artifacts import FsspecArtifacts
from portal.experiments.adapters.mlflow.health import is_tracking_reachable
from portal.experiments.adapters.mlflow.run_editor import SqlRunEditor
from portal.experiments.adapters.mlflow.run_writer import SqlRunWriter
from portal.experiments.adapters.mlflow.tracker import SqlTracker
from portal.experiments.adapters.mlflow.trash import SqlTrash
from portal.experiments.ports import ArtifactStore, RunEditor, RunWriter, Tracker, Trash

_PROBED_FOR_S = 5.0
_probed: dict[str, tuple[float, bool]] = {}


def is_mlflow_reachable() -> bool:
    """Return whether MLflow's server answers, from a check a few seconds old at most.

    Artifacts, models and traces need it. Runs and what is logged to them do not.
    """
    at = str(settings.SLIPWAY_TRACKING_SOCKET)
    until, answered = _probed.get(at, (0.0, False))
    if time.monotonic() >= until:
        answered = is_tracking_reachable()
        _probed[at] = (time.monotonic() + _PROBED_FOR_S, answered)
    return answered


def tracker() -> Tracker:
    """Return who reads what was tracked."""
    return SqlTracker()


def run_trash() -> Trash:
    """Return the run trash."""
    return SqlTrash()


def run_editor() -> RunEditor:
    """Return the editor of runs."""
    return SqlRunEditor()


def opener() -> RunWriter:
    """Return who begins and ends runs of the platform's own."""
    return SqlRunWriter()


@lru_cache(maxsize=8)
def _open_store(_pid: int, url: str, options: tuple[tuple[str, Any], ...]) -> ArtifactStore:
    return FsspecArtifacts(url, dict(options))


def artifact_store() -> ArtifactStore:
    """Return the store of artifacts of this process. A forked child gets one of its own."""
    options: tuple[tuple[str, Any], ...] = ()
    if settings.SLIPWAY_ARTIFACTS_URL.startswith("s3:"):
        options = tuple(sorted(settings.SLIPWAY_STORAGE_OPTIONS.items()))
    return _open_store(os.getpid(), settings.SLIPWAY_ARTIFACTS_URL, options)
