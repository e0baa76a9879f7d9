"""Wire schemas of notebook files: versions, verifications, runs as jobs.

POST   projects/{project}/notebook-files?path=         the .ipynb itself: NotebookFileOut
GET    projects/{project}/notebook-files                PageOf[NotebookFileOut]: ?q=&deleted=
GET    projects/{project}/notebook-files/{file}         NotebookFileOut
GET    …/{file}/versions                                PageOf[NotebookVersionOut]
GET    …/{file}/versions/{number}/content               the .ipynb: ?outputs=
DELETE …/{file}                                         204, reversible for three days by
POST   …/{file}/undelete                                → NotebookFileOut
POST   …/{file}/restore                                 RestoreIn → NotebookVersionOut
POST   …/{file}/branch                                  BranchIn → NotebookFileOut
POST   …/{file}/verify                                  VerifyIn → NotebookRunOut
POST   …/{file}/run                                     RunIn → NotebookRunOut
GET    …/{file}/runs                                    PageOf[NotebookRunOut]
GET    projects/{project}/notebook-runs/{workload}          NotebookRunOut
PUT    projects/{project}/notebook-runs/{workload}/report   CheckReport → NotebookRunOut
PUT    projects/{project}/notebook-runs/{workload}/output   the output notebook, as it stands
GET    projects/{project}/notebook-runs/{workload}/output   the same

A version stores the source of a notebook and, separately, its outputs. Equal sources or outputs are
stored once. Saving content equal to the newest version creates no new version.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from slipway.schemas.base import (
    AnswerSchema,
    Line,
    Name,
    Number,
    RelativePath,
    RequestSchema,
    Slug,
    Text,
    Truth,
    Whole,
)
from slipway.schemas.environments import EnvironmentReference
from slipway.schemas.training import Argument, ParameterName
from slipway.schemas.workloads import WorkloadState

MAX_NOTEBOOK_BYTES = 20 * 1024**2
MAX_FINDINGS = 500
_SHOWN = 2000
NotebookPath = Annotated[
    Line, Field(min_length=7, max_length=500, json_schema_extra={"pattern": r"^.+\.ipynb$"})
]
# Origin of a version, status of a file, and purpose of a run.
Origin = Literal["save", "restore", "branch"]
Badge = Literal["verified", "failed", "changed", "unverified", "checking"]
Purpose = Literal["verify", "run"]
FindingKind = Literal["fails", "hidden_state", "differs", "out_of_order", "never_run"]
VersionNumber = Annotated[Whole, Field(ge=1, le=2**31 - 1)]


class Finding(RequestSchema):
    """A finding of a clean run in one cell. `cell` counts all cells of the notebook from 1.

    `is_problem` marks findings that make a notebook not reproducible. The others are informational.
    `saved` and `fresh` are the two results if they differ, shortened.
    """

    kind: FindingKind
    cell: Annotated[Whole, Field(ge=1, le=100_000)]
    is_problem: Truth
    message: Annotated[Text, Field(min_length=1, max_length=_SHOWN)]
    next_step: Annotated[Text, Field(max_length=_SHOWN)] = ""
    saved: Annotated[Text, Field(max_length=_SHOWN)] = ""
    fresh: Annotated[Text, Field(max_length=_SHOWN)] = ""


class CheckReport(RequestSchema):
    """Result of running a notebook from top to bottom in a clean kernel.

    `findings_left_out` counts findings that are not listed. `passed` covers all of them.
    """

    passed: Truth
    code_cells: Annotated[Whole, Field(ge=0, le=100_000)]
    ran: Annotated[Whole, Field(ge=0, le=100_000)]
    duration_s: Annotated[Number, Field(ge=0, le=10_000_000)]
    findings: list[Finding] = Field(default=[], max_length=MAX_FINDINGS)
    findings_left_out: Annotated[Whole, Field(ge=0, le=10_000_000)] = 0


class RestoreIn(RequestSchema):
    """The version to restore as the newest one. Versions in between remain."""

    version: VersionNumber


class BranchIn(RequestSchema):
    """A new notebook that starts as a version of another one."""

    version: VersionNumber | None = None
    path: NotebookPath


class VerifyIn(RequestSchema):
    """The version to run in a clean kernel, and the tier. Defaults: the newest and the cheapest.

    `environment` is a named environment of the project, for a run without requirements.
    """

    version: VersionNumber | None = None
    tier: Slug | None = None
    requirements: Annotated[Text, Field(max_length=200_000)] = ""
    environment: EnvironmentReference | None = None


class RunIn(RequestSchema):
    """A version of a notebook to run as a job, with values for its cell tagged `parameters`.

    `environment` is a named environment of the project, for a run without requirements. With `pool`
    another scheduler decides when and where it runs.
    """

    version: VersionNumber | None = None
    name: Name | None = None
    tier: Slug | None = None
    params: dict[ParameterName, Argument] = Field(default={}, max_length=200)
    requirements: Annotated[Text, Field(max_length=200_000)] = ""
    environment: EnvironmentReference | None = None
    max_hours: Number | None = Field(default=None, gt=0, le=8760)
    pool: Slug | None = None


class NotebookVersionOut(AnswerSchema):
    """One save. `origin_version` is the version that was restored or branched from."""

    number: int
    origin: Origin = "save"
    origin_version: int | None = None
    origin_path: str | None = None
    cells: int
    source_digest: str
    outputs_digest: str | None = None
    size_bytes: int
    saved_by: str
    created_at: datetime


class NotebookFileOut(AnswerSchema):
    """A notebook of a project with its newest version. `deleted_at` is set if it was deleted."""

    id: str
    path: str
    badge: Badge
    badge_reason: str
    latest: NotebookVersionOut
    created_at: datetime
    deleted_at: datetime | None = None


class NotebookRunOut(AnswerSchema):
    """A notebook that runs as a job. `passed` and `report` belong to a completed verification."""

    workload: str
    purpose: Purpose
    path: RelativePath
    version: int | None = None
    params: dict[str, str] = {}
    state: WorkloadState
    explanation: str
    passed: bool | None = None
    report: CheckReport | None = None
    has_output: bool = False
    created_at: datetime
