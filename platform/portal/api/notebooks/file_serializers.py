"""From rows of notebooks to wire schemas."""

from portal.notebooks.models import NotebookFile, NotebookRun, NotebookVersion
from portal.notebooks.services.files_runs import reproducibility_of
from portal.workloads.explanations import Explainer
from slipway.schemas.notebook_files import (
    CheckReport,
    NotebookFileOut,
    NotebookRunOut,
    NotebookVersionOut,
)
from slipway.schemas.workloads import WorkloadState


def version_out(version: NotebookVersion) -> NotebookVersionOut:
    """Describe a version of `NotebookVersionQuerySet.complete`."""
    halves = [half for half in (version.source, version.outputs) if half is not None]
    origin = version.origin_version
    return NotebookVersionOut(
        number=version.number,
        origin=version.origin,
        origin_version=origin.number if origin else None,
        origin_path=origin.file.path if origin else None,
        cells=version.cells,
        source_digest=version.source.digest,
        outputs_digest=version.outputs.digest if version.outputs else None,
        size_bytes=sum(half.file.blob.size_bytes for half in halves),
        saved_by=version.created_by.email,
        created_at=version.created_at,
    )


def notebook_out(file: NotebookFile) -> NotebookFileOut:
    """Describe a notebook of `NotebookFileQuerySet.of_project`."""
    reproducibility = reproducibility_of(file)
    latest = NotebookVersion.objects.complete().get(file=file, number=file.head)
    return NotebookFileOut(
        id=file.pk,
        path=file.path,
        badge=reproducibility.badge,
        badge_reason=reproducibility.reason,
        latest=version_out(latest),
        created_at=file.created_at,
        deleted_at=file.deleted_at,
    )


def run_out(run: NotebookRun, explainer: Explainer) -> NotebookRunOut:
    """Describe a run to the person the explainer speaks to."""
    workload = run.workload
    return NotebookRunOut(
        workload=workload.pk,
        purpose=run.purpose,
        path=run.path,
        version=run.version.number if run.version else None,
        params=run.params,
        state=WorkloadState(workload.state),
        explanation=explainer.explain(workload),
        passed=run.passed,
        report=CheckReport.model_validate(run.report) if run.report else None,
        has_output=run.output_id is not None,
        created_at=run.created_at,
    )
