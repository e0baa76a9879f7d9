"""Context of a run, logged with your own metrics: code, packages, hardware, data, cost.

    >>> import mlflow
    >>> import slipway

    >>> with mlflow.start_run():
    ...     slipway.track.environment()
    ...     slipway.track.data(train_x, predictions=model.predict(train_x), truth=train_y)
    ...     ...
    ...     mlflow.log_metric("loss", loss)
    ...     slipway.track.cost()

Everything goes to MLflow's own active run by MLflow's own calls, so it works with any tracking
server. Inside a Slipway job that run is there already. MLflow itself is needed and is not installed
with this SDK.
"""

import hashlib
import json
import os
import platform
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from slipway.client import Client
from slipway.errors import InvalidInput, SlipwayError
from slipway.job import current
from slipway.samples import file_of, sample_of
from slipway.sanitize import visible
from slipway.schemas.training import GitFacts
from slipway.snapshots.git import GitFailed, git_facts, list_files
from slipway.snapshots.secrecy import looks_secret

__all__ = ["cost", "data", "environment", "packages"]

COST_METRIC = "slipway.cost_usd"
_NANO = 1_000_000_000
_PIECE_BYTES = 1024 * 1024
_DIGEST_LENGTH = 36  # MLflow stores this many characters


def environment(folder: str | Path = ".") -> dict[str, str]:
    """Log the commit of `folder` with what is not committed, the packages and the hardware.

    The commit, branch, host and hardware become tags, the difference and the packages artifacts
    under `slipway/`. Returns the tags. Outside of git the code is left out.
    """
    mlflow = _mlflow()
    tags = _hardware()
    git = _git(Path(folder))
    if git is not None:
        tags["mlflow.source.git.commit"] = git.commit
        tags["slipway.git.dirty"] = "true" if git.is_dirty else "false"
        if git.branch:
            tags["mlflow.source.git.branch"] = git.branch
        if git.remote:
            tags["mlflow.source.git.repoURL"] = git.remote
    mlflow.set_tags(tags)
    if git is not None and git.diff:
        mlflow.log_text(git.diff, "slipway/uncommitted.diff")
    mlflow.log_text(packages(), "slipway/packages.txt")
    return tags


def packages() -> str:
    """Return what is installed here, a line `name==version` for each package."""
    versions_by_name = {
        dist.metadata["Name"]: dist.version for dist in distributions() if dist.metadata
    }
    return "".join(
        f"{name}=={versions_by_name[name]}\n" for name in sorted(versions_by_name, key=str.lower)
    )


def data(
    source: Any,
    *,
    name: str | None = None,
    context: str | None = None,
    predictions: Any = None,
    truth: Any = None,
) -> str:
    """Log data as an input of the run: a file, or rows. Return a SHA-256, in hex.

    `source` is the path of a file, whose bytes stay where they are, or a data frame, array or list
    of rows. Of rows a sample of at most 10,000 is logged as an artifact: once the model of the run
    is registered, its predictions are compared with it. With the `predictions` the model gave for
    these rows, and the `truth`, a replica proves itself by some of them, and the quality to expect
    is estimated before labels come. `context` says what the data is for, such as `training`.
    """
    if not isinstance(source, str | Path):
        return _rows(source, name or "data", context or "training", predictions, truth)
    mlflow, file = _mlflow(), Path(source)
    digest = hashlib.sha256()
    try:
        with file.open("rb") as content:
            while piece := content.read(_PIECE_BYTES):
                digest.update(piece)
    except OSError as error:
        raise InvalidInput(
            f"The file {visible(str(source))} cannot be read: {error.strerror}.",
            field="path",
            next_step="Name a file that is there.",
        ) from None
    result = digest.hexdigest()
    _log_input(mlflow, {"path": str(file.resolve())}, name or file.name, result, context)
    return result


def _rows(source: Any, name: str, context: str, predictions: Any, truth: Any) -> str:
    mlflow = _mlflow()
    sample = sample_of(source, predictions, truth)
    text = json.dumps(sample, allow_nan=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    mlflow.log_text(text, file_of(context))
    _log_input(mlflow, {"rows": str(sample["rows"])}, name, digest, context)
    return digest


def _log_input(
    mlflow: Any, tags: dict[str, str], name: str, digest: str, context: str | None
) -> None:
    source = import_module("mlflow.data.code_dataset_source").CodeDatasetSource(tags=tags)
    kind = import_module("mlflow.data.meta_dataset").MetaDataset
    dataset = kind(source, name=name, digest=digest[:_DIGEST_LENGTH])
    mlflow.log_input(dataset, context=context)


def cost(client: Client | None = None) -> float | None:
    """Log the cost of the job so far, in USD, as the metric `slipway.cost_usd`, and return it.

    Outside a Slipway job it does nothing and returns None.
    """
    me = current()
    if me.id is None or me.project is None:
        return None
    mlflow = _mlflow()
    used = client or Client()
    try:
        job = used.jobs.get(me.id, project=me.project)
    finally:
        if client is None:
            used.close()
    dollars = job.cost_nano_usd / _NANO
    mlflow.log_metric(COST_METRIC, dollars, step=job.step or 0)
    return dollars


def _git(folder: Path) -> GitFacts | None:
    """Return the commit and the uncommitted changes, or None outside of git."""
    try:
        listing = list_files(folder)
        return git_facts(folder, new_files=listing.others, is_private=looks_secret)
    except GitFailed:
        return None


def _hardware() -> dict[str, str]:
    """Return the machine as tags."""
    hardware = {
        "slipway.host": platform.node(),
        "slipway.python": platform.python_version(),
        "slipway.cpus": str(len(os.sched_getaffinity(0))),
        "slipway.memory_bytes": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
    }
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus:
        hardware["slipway.gpus"] = gpus
    return hardware


def _mlflow() -> Any:
    """Return MLflow, or say how to come by it."""
    try:
        return import_module("mlflow")
    except ImportError:
        raise SlipwayError(
            "MLflow is not installed here.",
            code="mlflow_missing",
            next_step="Install it: pip install mlflow-skinny",
        ) from None
