"""Input of the forms of jobs and sweeps: uploaded code, and what determines the price."""

from typing import Any

from django.http import HttpRequest, QueryDict

from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.core.errors import SlipwayError
from portal.training.project_folder import ProjectFolder
from portal.training.services.snapshots import snapshot_of
from portal.training.services.uploads import ingest_upload
from portal.web.base.form_submission import sent
from portal.web.jobs.forms import NewJob
from slipway.schemas.training import JobIn

# Placeholder for code that has not been chosen yet: a quote does not need it.
_NO_CODE = "0" * 64
# Fields that determine the price.
_PRICED = (
    *("name", "script", "tier", "nodes", "procs", "strategy", "backend"),
    *("framework", "max_hours", "keep_failed_minutes", "preemptible"),
    *("requirements", "environment", "python", "pool"),
)


def with_uploaded_code(
    request: HttpRequest, project: Project
) -> tuple[QueryDict | None, SlipwayError | None]:
    """Accept an uploaded file and replace it in the form by its snapshot."""
    data, file = sent(request), request.FILES.get("code")
    if data is None or file is None:
        return data, None
    try:
        snapshot = ingest_upload(
            project=project,
            by=require_principal(request).user,
            name=file.name or "",
            chunks=file.chunks(),
        )
    except SlipwayError as error:
        return data, error
    data = data.copy()
    data["snapshot"] = snapshot.digest
    data["script"] = data.get("script") or next(iter(snapshot.scripts), "")
    return data, None


def priced_job(project: Project, form: NewJob) -> JobIn:
    """Return the job that a form describes so far, as far as its price depends on it.

    Raises ValidationError or ValueError while the input is not complete.
    """
    clean_values_by_name = {
        name: form.fields[name].clean(value) for name, value in _priced_facts(form)
    }
    script = str(clean_values_by_name.get("script", "x.py"))
    return JobIn.model_validate(
        {
            "snapshot": _code(project, form, script),
            "script": script,
            **clean_values_by_name,
            **_kept(form),
        }
    )


def _kept(form: NewJob) -> dict[str, Any]:
    """Return the rule for files as it stands in the form."""
    patterns = str(form["keep"].value() or "").split()
    limit = form.fields["keep_limit_gb"].clean(form["keep_limit_gb"].value())
    rule: dict[str, Any] = {"keep": patterns} if patterns else {}
    return rule | ({} if limit is None else {"keep_limit_bytes": round(limit * 10**9)})


def _code(project: Project, form: NewJob, script: str) -> str:
    """Return the digest of the chosen code once it has the script, which may still be typed."""
    snapshot = snapshot_of(project, str(form["snapshot"].value() or ""))
    has_script = snapshot is not None and ProjectFolder(snapshot).has(script)
    return snapshot.digest if snapshot is not None and has_script else _NO_CODE


def _priced_facts(form: NewJob) -> list[tuple[str, Any]]:
    typed = [(name, form[name].value()) for name in _PRICED if name in form.fields]
    return [(name, value) for name, value in typed if value not in (None, "")]
