"""Training from Python: one call from a script on this machine to a job that runs."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from slipway import console
from slipway.client import Client
from slipway.console import outcome
from slipway.credentials import default_project
from slipway.errors import InvalidInput
from slipway.resources.jobs import job_body
from slipway.sanitize import visible
from slipway.schemas.backends import BackendName
from slipway.schemas.money import dollars
from slipway.schemas.training import JobIn, JobOut
from slipway.snapshots import DEFAULT_LIMIT_BYTES, Snapshot, take_snapshot
from slipway.terminal_text import tame


def train(
    script: str | Path,
    *,
    nodes: int = 1,
    procs: int = 1,
    strategy: str | None = None,
    framework: str | None = None,
    backend: BackendName | None = None,
    tier: str | None = None,
    pool: str | None = None,
    params: Mapping[str, object] | None = None,
    args: Sequence[str] = (),
    requirements: str | Path | None = None,
    environment: str | None = None,
    python: str | None = None,
    datasets: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    name: str | None = None,
    parent: str | None = None,
    priority: int | None = None,
    max_attempts: int | None = None,
    max_hours: float | None = None,
    hang_after_minutes: int | None = None,
    preemptible: bool = False,
    keep_failed_minutes: int | None = None,
    keep: Sequence[str] | None = None,
    keep_limit_bytes: int | None = None,
    folder: str | Path = ".",
    include: Sequence[str] = (),
    added: Mapping[str, bytes] | None = None,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    project: str | None = None,
    client: Client | None = None,
    watch: bool = False,
) -> JobOut:
    """Run `script`, a Python file or notebook of `folder`, as a job on `nodes` times `procs` ranks.

    `added` files travel with the code. `params` reach the script as `--name=value` after `args`.
    `strategy` is a word of `slipway.distributed`; `framework` is `ray`, `dask`, `parameter_server`.
    `requirements` is a file, "" for none, `environment` one of the project. In a `pool` another
    scheduler allocates the nodes. `datasets` are versions (`digits:3`). Files that match `keep`
    become artifacts. A `preemptible` job makes way. A failed task stays `keep_failed_minutes`.
    """
    with contextlib.ExitStack() as stack:
        client = client or stack.enter_context(Client())
        place = default_or_given_project(client, project)
        taken = take_snapshot(
            folder, script=script, include=include, added=added, limit_bytes=limit_bytes
        )
        snapshot = stack.enter_context(taken)
        body = job_body(
            script=snapshot.script(script),
            snapshot=snapshot.digest,
            git=snapshot.git,
            name=name,
            parent=parent,
            args=args,
            params=params,
            nodes=nodes,
            procs=procs,
            strategy=strategy,
            framework=framework,
            backend=backend,
            tier=tier,
            pool=pool,
            **requirements_fields(snapshot, requirements),
            environment=environment,
            python=python,
            datasets=[*datasets] or None,
            tags=None if tags is None else {**tags},
            priority=priority,
            max_attempts=max_attempts,
            max_hours=max_hours,
            hang_after_minutes=hang_after_minutes,
            preemptible=preemptible or None,
            keep_failed_minutes=keep_failed_minutes,
            keep=None if keep is None else [*keep],
            keep_limit_bytes=keep_limit_bytes,
        )
        return _submitted(client, snapshot, body, place, watch=watch)


def _submitted(
    client: Client, snapshot: Snapshot, body: JobIn, project: str, *, watch: bool
) -> JobOut:
    client.snapshots.upload(snapshot, project=project)
    job = client.jobs.submit_body(body, project=project)
    return _watched(client, job) if watch else job


def requirements_fields(
    snapshot: Snapshot, requirements: str | Path | None
) -> dict[str, str | None]:
    """Return the fields of a job for a requirements file: a path in the snapshot, or its text.

    "" stands for no packages, None for what the snapshot names itself.
    """
    if requirements is None or requirements == "":
        return {"requirements": None if requirements is None else ""}
    path = snapshot.path_of(requirements)
    if path is not None:
        return {"requirements_file": path}
    return {"requirements": requirements_text(requirements)}


def requirements_text(path: str | Path) -> str:
    """Return the text of a requirements file, or raise InvalidInput when it cannot be read."""
    file = Path(path).expanduser()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(
            f"The requirements file {visible(str(path))} cannot be read: {reason}.",
            code="requirements_file",
            field="requirements",
            next_step="Name a file such as requirements.txt.",
        ) from None


def default_or_given_project(client: Client, given: str | None) -> str:
    """Return the project that is named, or the one in use. Raises InvalidInput for neither."""
    slug = given or default_project(client.url)
    if slug is None:
        raise InvalidInput(
            "No project is named and none is in use.",
            field="project",
            next_step='Pass project="…", or choose one with `slipway project use PROJECT`.',
        )
    return slug


def _watched(client: Client, job: JobOut) -> JobOut:
    """Show a job until it has ended: its page and price first, then what happens."""
    page = client.jobs.page(job.workload.id, project=job.workload.project)
    print(f"· {page}  ({dollars(job.nano_usd_per_hour)} an hour)")  # noqa: T201
    ended = console.watch(client, job)
    for line in outcome(ended)[1:]:
        print(f"· {tame(line, colours=False)}")  # noqa: T201
    return ended
