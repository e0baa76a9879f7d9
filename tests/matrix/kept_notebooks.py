"""What the room of notebooks adds to the world of the matrix: one of two versions, and a run."""

import json

from portal.accounts.models import Project, User
from portal.notebooks.models import NotebookRun, WorkspaceRequest, transfer_deadline
from portal.notebooks.services.files import save_notebook
from portal.storage.services import store_file
from portal.workloads.models import Lease, Workload
from slipway.schemas.workspace_files import FileRequest


def content_of(words: str) -> bytes:
    """Return a notebook that says one thing."""
    cell = {"cell_type": "markdown", "id": "one", "metadata": {}, "source": [words]}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook).encode()


def make_notebook(*, project: Project, by: User) -> dict[str, str]:
    """Save a notebook twice."""
    path = f"of-{by.name}.ipynb".lower()
    save_notebook(project=project, by=by, path=path, content=content_of("first"))
    saved = save_notebook(project=project, by=by, path=path, content=content_of(by.email))
    return {"notebook": saved.version.file_id, "notebook version": "1"}


def make_notebook_run(workload_id: str) -> None:
    """Let a job be one that runs a notebook and has sent its output."""
    workload = Workload.objects.select_related("project", "submitted_by").get(pk=workload_id)
    output = store_file(
        project=workload.project,
        by=workload.submitted_by,
        name="output.ipynb",
        chunks=iter([content_of(workload.submitted_by.email)]),
    )
    NotebookRun.objects.create(
        workload=workload, path="output.ipynb", purpose="verify", output=output
    )


def make_file_request(workload_id: str) -> str:
    """Let somebody wait for a folder on the node that runs a job."""
    workload = Workload.objects.get(pk=workload_id)
    request = FileRequest(id="", folder=f"{workload.project_id}/workspace", operation="list")
    row = WorkspaceRequest.objects.create(
        project=workload.project,
        person=workload.submitted_by,
        node=Lease.objects.filter(workload=workload).latest("pk").node,
        request=request.model_dump(mode="json", exclude={"id"}),
        state="waiting",
        expires_at=transfer_deadline(),
    )
    return row.pk
