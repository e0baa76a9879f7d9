"""Notebooks as jobs: verified in a clean kernel, or run for their results."""

import io
import tarfile
from dataclasses import dataclass, field

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.core.errors import Conflict, NotFound
from portal.notebooks.documents import split_outputs
from portal.notebooks.models import NotebookFile, NotebookRun, NotebookVersion
from portal.notebooks.ports import NotebookJobSpec, jobs
from portal.notebooks.services.files import read_version
from portal.storage.ports import StoredBytes
from portal.storage.services import add_file, delete_file, discard_bytes, receive_bytes
from portal.workloads.lifecycle import ENDS
from portal.workloads.models import Workload
from slipway.schemas.notebook_files import Badge, CheckReport, Purpose
from slipway.schemas.training import Quote
from slipway.schemas.truncation import shorten_name

_VERIFY = "--verify"
_NAME_CHARACTERS = 80


@dataclass(frozen=True)
class NotebookRunRequest:
    """Options for a run of a notebook version."""

    purpose: Purpose
    tier: str | None = None
    name: str | None = None
    params: dict[str, str] = field(default_factory=dict)
    requirements: str = ""
    environment: str | None = None
    max_hours: float | None = None
    pool: str | None = None


@dataclass(frozen=True)
class Reproducibility:
    """Reproducibility badge of a notebook, and the reason in a sentence."""

    badge: Badge
    reason: str


def start_run(*, version: NotebookVersion, by: User, wish: NotebookRunRequest) -> NotebookRun:
    """Queue a version as a job. Call it outside a transaction.

    Raises InvalidInput for a tier, a pool, a requirement or parameters that cannot be, as a job's
    are.
    """
    project = version.file.project
    code = jobs().store_code(project=project, by=by, tar=[_tar_of(version)])
    with transaction.atomic():
        workload = jobs().submit(project=project, by=by, code=code, spec=_job_spec(version, wish))
        run = NotebookRun.objects.create(
            workload=workload,
            version=version,
            path=version.file.path,
            purpose=wish.purpose,
            params=wish.params,
            created_at=workload.created_at,
        )
        audit.record(
            f"notebook.{'verify' if wish.purpose == 'verify' else 'run'}",
            kind="notebook",
            target=version.file,
            label=version.file.path,
            project=project,
            after={"version": version.number, "job": workload.pk},
        )
    return run


def quote_run(*, version: NotebookVersion, by: User, wish: NotebookRunRequest) -> Quote:
    """Quote a run of a version: its cost, and whether it would wait. Nothing is queued."""
    return jobs().quote(project=version.file.project, by=by, spec=_job_spec(version, wish))


def _job_spec(version: NotebookVersion, wish: NotebookRunRequest) -> NotebookJobSpec:
    last = version.file.path.rpartition("/")[2].removesuffix(".ipynb")
    last = shorten_name(last, _NAME_CHARACTERS)
    return NotebookJobSpec(
        name=wish.name or (f"verify {last}" if wish.purpose == "verify" else last),
        script=version.file.path,
        tier=wish.tier,
        args=(_VERIFY,) if wish.purpose == "verify" else (),
        params=wish.params,
        requirements=wish.requirements,
        environment=wish.environment,
        max_hours=wish.max_hours,
        pool=wish.pool,
    )


def _tar_of(version: NotebookVersion) -> bytes:
    """Return the notebook alone as code of a job. The same notebook is the same bytes."""
    is_run = io.BytesIO()
    content = read_version(version)
    with tarfile.open(fileobj=is_run, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo(version.file.path)
        member.size, member.mode = len(content), 0o644
        tar.addfile(member, io.BytesIO(content))
    return is_run.getvalue()


def run_of_job(*, project: Project, workload_id: str) -> NotebookRun:
    """Return the run of a job. Raises NotFound."""
    run = NotebookRun.objects.of_project(project).filter(pk=workload_id).first()
    if run is None:
        raise NotFound
    return run


def store_output(*, workload: Workload, path: str, content: bytes) -> NotebookRun:
    """Store the output notebook of a job, in place of what it sent before.

    A job whose notebook came with a folder of code is known from here on. Call it outside a
    transaction. Raises InvalidInput for what is no notebook, such as a part of one.
    """
    split_outputs(content)
    stored = receive_bytes(chunks=[content])
    try:
        return _replace_output(workload, path, stored)
    except BaseException:
        discard_bytes(stored)
        raise


def _replace_output(workload: Workload, path: str, stored: StoredBytes) -> NotebookRun:
    with transaction.atomic():
        run, _ = NotebookRun.objects.get_or_create(
            workload=workload,
            defaults={"path": path, "purpose": "run", "created_at": workload.created_at},
        )
        run = NotebookRun.objects.select_for_update(no_key=True).get(pk=run.pk)
        before = run.output
        if before is not None and before.blob.sha256 == stored.sha256:
            transaction.on_commit(lambda: discard_bytes(stored))
            return run
        name = run.path.rpartition("/")[2][-255:]
        run.output = add_file(
            project=workload.project, by=workload.submitted_by, name=name, stored=stored
        )
        run.save(update_fields=["output"])
        if before is not None:
            delete_file(file=before)
    return run


def record_check_report(*, run: NotebookRun, report: CheckReport) -> NotebookRun:
    """Record the result of a verification. Idempotent.

    Raises Conflict for a run that verifies nothing, or that has said something else before.
    """
    if run.purpose != "verify":
        raise Conflict(
            "This job runs a notebook but does not verify it.",
            code="no_verification",
            next_step="Start a verification to get a report.",
        )
    values = report.model_dump(mode="json")
    if run.passed is not None:
        if run.report == values:
            return run
        raise Conflict(
            "This verification has already ended.",
            code="already_reported",
            next_step="Start a new one.",
        )
    with transaction.atomic():
        if NotebookRun.objects.record_result(run.pk, passed=report.passed, report=values):
            version = run.version
            audit.record(
                "notebook.verified",
                kind="notebook",
                target=version.file if version else run,
                label=run.path,
                project=run.workload.project,
                after={"passed": report.passed, "job": run.pk},
            )
    run.refresh_from_db()
    return run


def reproducibility_of(file: NotebookFile) -> Reproducibility:
    """Return the reproducibility of a notebook of `NotebookFileQuerySet.of_project`."""
    waiting = NotebookRun.objects.filter(
        version__file=file, version__number=file.head, purpose="verify", passed__isnull=True
    ).exclude(workload__state__in=[state.value for state in ENDS])
    if waiting.exists():
        return Reproducibility("checking", f"Version {file.head} is being run in a clean kernel.")
    number, passed = file.checked_number, file.checked_passed  # type: ignore[attr-defined]
    if number is None:
        return Reproducibility("unverified", "Not verified in a clean kernel yet.")
    if number != file.head:
        word = "was reproducible" if passed else "was not reproducible"
        return Reproducibility("changed", f"Version {number} {word}; it has changed since.")
    if passed:
        return Reproducibility("verified", "A clean kernel reproduced all results, top to bottom.")
    return Reproducibility("failed", "A clean kernel gave different results from the saved ones.")
