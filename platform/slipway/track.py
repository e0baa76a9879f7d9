"""What a run ran with, logged beside your own metrics: code, packages, hardware, data, cost.

    >>> import mlflow
    >>> import slipway

    >>> with mlflow.start_run():
    ...     slipway.track.surroundings()
    ...     slipway.track.data("train.csv", context="training")
    ...     ...
    ...     mlflow.log_metric("loss", loss)
    ...     slipway.track.cost()

Everything goes to MLflow's own active run by MLflow's own calls, so it works with any tracking
server; inside a Slipway job that run is there already. MLflow itself is needed and is not installed
with this SDK.
"""

import hashlib
import os
import platform
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from slipway.client import Client
from slipway.errors import InvalidInput, SlipwayError
from slipway.job import current
from slipway.schemas.training import GitFacts
from slipway.snapshots.git import GitFailed, facts_of, list_files
from slipway.snapshots.secrecy import looks_secret
from slipway.visible import visible

__all__ = ["cost", "data", "packages", "surroundings"]

COST_METRIC = "slipway.cost_usd"
_NANO = 1_000_000_000
_PIECE_BYTES = 1024 * 1024
_DIGEST_LENGTH = 36  # as many characters as MLflow keeps


def surroundings(folder: str | Path = ".") -> dict[str, str]:
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
    found = {dist.metadata["Name"]: dist.version for dist in distributions() if dist.metadata}
    return "".join(f"{name}=={found[name]}\n" for name in sorted(found, key=str.lower))


def data(path: str | Path, *, name: str | None = None, context: str | None = None) -> str:
    """Log a file as an input of the run; returns the SHA-256 of its bytes, in hex.

    `context` says what it is for, such as `training`. The bytes stay where they are.
    """
    mlflow, file = _mlflow(), Path(path)
    digest = hashlib.sha256()
    try:
        with file.open("rb") as content:
            while piece := content.read(_PIECE_BYTES):
                digest.update(piece)
    except OSError as error:
        raise InvalidInput(
            f"The file {visible(str(path))} cannot be read: {error.strerror}.",
            field="path",
            next_step="Name a file that is there.",
        ) from None
    found = digest.hexdigest()
    sources = import_module("mlflow.data.code_dataset_source")
    source = sources.CodeDatasetSource(tags={"path": str(file.resolve())})
    kind = import_module("mlflow.data.meta_dataset").MetaDataset
    dataset = kind(source, name=name or file.name, digest=found[:_DIGEST_LENGTH])
    mlflow.log_input(dataset, context=context)
    return found


def cost(client: Client | None = None) -> float | None:
    """Log what the job has cost so far, in USD, as the metric `slipway.cost_usd`; returns it.

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
    """Return the commit and what is not committed; None outside of git."""
    try:
        listing = list_files(folder)
        return facts_of(folder, new_files=listing.others, is_private=looks_secret)
    except GitFailed:
        return None


def _hardware() -> dict[str, str]:
    """Return the machine as tags."""
    found = {
        "slipway.host": platform.node(),
        "slipway.python": platform.python_version(),
        "slipway.cpus": str(len(os.sched_getaffinity(0))),
        "slipway.memory_bytes": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
    }
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus:
        found["slipway.gpus"] = gpus
    return found


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
