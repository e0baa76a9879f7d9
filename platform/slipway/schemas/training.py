"""Wire schemas of training jobs: the submission, and the state of a job.

Under `/api/v1`:

POST   projects/{project}/snapshots            a tar (application/octet-stream, X-Slipway-Sha256)
                                               → SnapshotOut; the same bytes give the same digest
GET    projects/{project}/snapshots/{digest}   the tar
GET    projects/{project}/jobs                 PageOf[JobOut]; ?state=&q=&submitted_by=&tier=
POST   projects/{project}/jobs                 JobIn → JobOut (201)
POST   projects/{project}/jobs/quote           JobIn → Quote: what it would cost and why it waits;
                                               the snapshot need not be uploaded yet
GET    projects/{project}/jobs/{job}           JobOut
POST   projects/{project}/jobs/{job}/cancel    → JobOut
POST   projects/{project}/jobs/{job}/clone     JobEdit → JobOut (201)
GET    projects/{project}/jobs/{job}/events    PageOf[WorkloadEventOut]
GET    projects/{project}/jobs/{job}/logs      bytes of one rank: ?rank=&attempt=&offset=&limit=
GET    projects/{project}/jobs/{job}/follow    Server-Sent Events: ?rank=&attempt=&logs=
GET    projects/{project}/jobs/{job}/samples   list[SampleOut]
GET    projects/{project}/jobs/{job}/checkpoints  list[CheckpointOut]
GET    tiers                                   PageOf[TierOut]

`logs` returns the bytes from `offset` (0) on, at most `limit` (4 MiB, which is also the most), of
`rank` (0) in `attempt` (the latest). Its headers are X-Log-Attempt, X-Log-Size (the current
size of the log), X-Log-Complete (`true` when it will not grow) and X-Log-Offset (the offset of the
first byte, if that is later than requested because a bounded log has lost its middle).

`follow` returns text/event-stream. `rank` and `attempt` narrow the log, `logs=false` leaves it out.

event: state    JobProgress: immediately, and after every change
event: log      LogPiece: ordered by offset within one attempt and rank
event: sample   SampleOut
event: end      {}: the job has ended, or failed and is kept, and everything was sent

Each event has an `id`. A client that reconnects with it in Last-Event-ID continues after that
event, without gaps. A comment is sent after 15 s of silence.
"""

import re
from base64 import b64decode, b64encode
from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from slipway.schemas.backends import DEFAULT_BACKEND, BackendName
from slipway.schemas.base import (
    AnswerSchema,
    Digest,
    Line,
    Name,
    Number,
    PythonVersion,
    RelativePath,
    RequestSchema,
    Slug,
    Text,
    Truth,
    Whole,
    line_field,
)
from slipway.schemas.datasets import DatasetReference
from slipway.schemas.environments import EnvironmentReference
from slipway.schemas.frameworks import FrameworkName
from slipway.schemas.kept_files import (
    DEFAULT_KEEP,
    DEFAULT_LIMIT_BYTES,
    MAX_LIMIT_BYTES,
    MOST_PATTERNS,
    JobFiles,
    Pattern,
)
from slipway.schemas.spend import BudgetRemainder, ExpectedCost
from slipway.schemas.workloads import WorkloadOut

MAX_DIFF_CHARACTERS = 1_000_000
_FUNCTION = re.compile(r"(?P<file>.+\.py)::[A-Za-z_][A-Za-z0-9_]*")


def script_file(script: str) -> str:
    """Return the file of a script, which may be a function: `steps.py::train`."""
    match = _FUNCTION.fullmatch(script)
    return script if match is None else match["file"]


def _storable(text: str) -> str:
    """Refuse characters that no database stores. A diff stays byte-exact, or it would not apply."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("holds a NUL character or a lone surrogate")
    return text


Argument = Annotated[Line, Field(max_length=4096)]
# Tags by which spend is split, at most ten per job, such as `team=vision`.
TagName = Annotated[Line, line_field(r"^[A-Za-z][A-Za-z0-9_.-]{0,39}$")]
TagValue = Annotated[Line, Field(min_length=1, max_length=60)]
Tags = Annotated[dict[TagName, TagValue], Field(max_length=10)]
ParameterName = Annotated[Line, line_field(r"^[A-Za-z_][A-Za-z0-9_.-]{0,99}$")]


LOG_READ_BYTES = 4 * 1024**2


class GitFacts(AnswerSchema):
    """The commit of a snapshot. `diff` contains the uncommitted changes as a unified diff."""

    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40,64}$")]
    branch: Annotated[Line, Field(max_length=250)] = ""
    remote: Annotated[Line, Field(max_length=500)] = ""
    is_dirty: Truth = False
    diff: Annotated[str, AfterValidator(_storable), Field(max_length=MAX_DIFF_CHARACTERS)] = ""


class SnapshotOut(AnswerSchema):
    """A code snapshot: a tar with sorted names and no times, so that equal code has equal bytes."""

    digest: Digest
    size_bytes: int
    files: int


class JobIn(RequestSchema):
    """A job to run: `script` of the snapshot on `nodes` times `procs` ranks.

    `params` are passed to the script as `--name=value` after `args`, and shown with the job.
    `strategy` is a word of `slipway.distributed`. `requirements` is the text of a requirements
    file, and empty means the environment of the installation. `requirements_file` is the path of
    one in the snapshot instead. `environment` is a named environment of the project (`vision`, or
    `vision@3` for one version), or `installation`. Without these, the files nearest to the script
    are used: in a container an image is built from a Dockerfile; else requirements.txt, uv.lock,
    poetry.lock, conda-lock.yml, environment.yml (not in containers) or pyproject.toml. Without them
    it is the project's default environment, or that of the installation. `python` is a version,
    such as `3.12`; without it, the nearest .python-version or requires-python of a pyproject.toml
    counts, and files of conda have their own.
    `pool` is where another scheduler allocates the nodes; without one it runs on the nodes of the
    installation. `backend` isolates the ranks from others on their node: `process`, which starts
    immediately, or `docker`, a container. `datasets` are versions to read (`digits:3`, without a
    number the latest at submission): in the job `slipway.dataset("digits")` is that version. `tags`
    split the cost. `parent` is the id of a job or other workload of the project that this job is a
    part of: it is stopped with it, and its cost counts there. Files that it writes in its working
    folder and that match a glob of `keep` become artifacts of its run, up to `keep_limit_bytes` for
    each node (0: none do). With a `framework` (`ray`, `dask`, `parameter_server`) the ranks form
    its cluster, and the script runs once, on rank 0. A `preemptible` job costs less, and may be
    stopped when other work needs its place: it gets its grace to save, waits in its old place in
    the queue and resumes from its checkpoint. With `keep_failed_minutes` its task stays that long
    after it has failed for good, so that a shell can be opened in it. It costs as a running one
    does. The job has one node, which belongs to the installation, and the back end `process`.
    """

    name: Name | None = None
    snapshot: Digest
    script: RelativePath
    args: list[Argument] = Field(default=[], max_length=200)
    params: dict[ParameterName, Argument] = Field(default={}, max_length=200)
    tier: Slug | None = None
    pool: Slug | None = None
    nodes: Whole = Field(default=1, ge=1, le=1024)
    procs: Whole = Field(default=1, ge=1, le=256)
    strategy: Annotated[Line, Field(max_length=200)] | None = None
    framework: FrameworkName | None = None
    backend: BackendName = DEFAULT_BACKEND
    requirements: Annotated[Text, Field(max_length=1_000_000)] | None = None
    requirements_file: RelativePath | None = None
    environment: EnvironmentReference | None = None
    python: PythonVersion | None = None
    datasets: list[DatasetReference] = Field(default=[], max_length=20)
    tags: Tags = {}
    git: GitFacts | None = None
    parent: Annotated[Line, Field(min_length=1, max_length=32)] | None = None
    priority: Whole = Field(default=0, ge=-100, le=100)
    max_attempts: Whole = Field(default=3, ge=1, le=20)
    preemptible: Truth = False
    hang_after_minutes: Whole | None = Field(default=30, ge=1, le=10_080)
    keep_failed_minutes: Whole = Field(default=0, ge=0, le=1440)
    keep: list[Pattern] = Field(default=DEFAULT_KEEP, max_length=MOST_PATTERNS)
    keep_limit_bytes: Whole = Field(default=DEFAULT_LIMIT_BYTES, ge=0, le=MAX_LIMIT_BYTES)
    max_hours: Number | None = Field(default=None, gt=0, le=8760)


class JobEdit(RequestSchema):
    """Changes of a clone. Omitted fields are copied.

    `git` belongs to `snapshot`: a new snapshot without `git` has no commit. `environment` replaces
    the packages of the job.
    """

    name: Name | None = None
    snapshot: Digest | None = None
    git: GitFacts | None = None
    script: RelativePath | None = None
    args: list[Argument] | None = Field(default=None, max_length=200)
    params: dict[ParameterName, Argument] | None = Field(default=None, max_length=200)
    tier: Slug | None = None
    pool: Slug | None = None
    nodes: Whole | None = Field(default=None, ge=1, le=1024)
    procs: Whole | None = Field(default=None, ge=1, le=256)
    strategy: Annotated[Line, Field(max_length=200)] | None = None
    framework: FrameworkName | None = None
    backend: BackendName | None = None
    environment: EnvironmentReference | None = None
    python: PythonVersion | None = None
    datasets: list[DatasetReference] | None = Field(default=None, max_length=20)
    tags: Tags | None = None
    max_attempts: Whole | None = Field(default=None, ge=1, le=20)
    preemptible: Truth | None = None
    keep_failed_minutes: Whole | None = Field(default=None, ge=0, le=1440)
    keep: list[Pattern] | None = Field(default=None, max_length=MOST_PATTERNS)
    keep_limit_bytes: Whole | None = Field(default=None, ge=0, le=MAX_LIMIT_BYTES)


class PackagesOut(AnswerSchema):
    """Packages of a job: `count` of them from `file`, a path in the snapshot, or the request.

    `environment` is the version of a named environment that has them, such as `vision@3`. `python`
    is the version of Python. Without any, and with `is_installed`, the job runs in the environment
    of the installation, which needs no build. `not_used` are files that were found and that no
    environment is built from. If `file` is a Dockerfile, an image is built, which has a Python of
    its own. `explanation` says all of this in sentences.
    """

    explanation: str
    file: str | None = None
    count: int = 0
    is_installed: bool = False
    not_used: list[str] = []
    environment: str | None = None
    python: str = ""


class Quote(AnswerSchema):
    """Cost of a job, and whether it could start now. Money in nano-USD.

    `expected` is the cost of similar past jobs, absent without history. `budgets` are those that
    would have to admit it, each of which reserves `set_aside_nano_usd` for it. `files` says what
    happens to the files that the job writes. `packages` is absent while the snapshot is not
    uploaded. `full_nano_usd_per_hour` is the price without the discount of preemptible work.
    """

    nano_usd_per_hour: int
    full_nano_usd_per_hour: int = 0
    can_ever_run: bool
    would_wait: bool
    explanation: str
    packages: PackagesOut | None = None
    expected: ExpectedCost | None = None
    budgets: list[BudgetRemainder] = []
    set_aside_nano_usd: int = 0
    files: str = ""


class CheckpointOut(AnswerSchema):
    """A verified checkpoint of a job.

    `copied_at` is the time of its copy in the store, from which the job can resume on any node. It
    is null while the checkpoint is only on its node.
    """

    step: int
    size_bytes: int
    attempt: int
    created_at: datetime
    copied_at: datetime | None = None


class SampleOut(AnswerSchema):
    """Resource usage of one task at a point in time."""

    at: datetime
    task: int
    cpu_percent: float
    memory_bytes: int
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None


class JobOut(AnswerSchema):
    """A job: its workload and its exact submission.

    `pool` is where another scheduler allocates its nodes, null for the nodes of the installation.
    `environment` is the digest of its packages, and `environment_version` the version of the named
    environment that has them. `python` is the version of Python of that environment, if it uses one
    of the node. `requirements_file` is the path, in the snapshot, of the file that
    they come from. `files` are those that its tasks kept at the end of the latest attempt, by rank.
    Lists of jobs leave them out.
    """

    workload: WorkloadOut
    script: str
    args: list[str]
    params: dict[str, str]
    strategy: str | None = None
    strategy_reason: str | None = None
    framework: str | None = None
    backend: str = DEFAULT_BACKEND
    pool: str | None = None
    snapshot: SnapshotOut
    git: GitFacts | None = None
    environment: str | None = None
    environment_version: str | None = None
    python: str | None = None
    requirements_file: str | None = None
    datasets: list[str] = []
    tags: dict[str, str] = {}
    cloned_from: str | None = None
    nano_usd_per_hour: int
    cost_nano_usd: int
    first_step_after_s: float | None = None
    step: int | None = None
    resumable_step: int | None = None
    log_ranks: list[int] = []
    keep: list[str] = []
    keep_limit_bytes: int = 0
    keep_failed_minutes: int = 0
    files: list[JobFiles] = []


class JobProgress(AnswerSchema):
    """The fields of `JobOut` that change while it runs."""

    workload: WorkloadOut
    cost_nano_usd: int = 0
    first_step_after_s: float | None = None
    step: int | None = None
    resumable_step: int | None = None
    log_ranks: list[int] = []


class LogPiece(AnswerSchema):
    """Bytes of a rank's log from `offset` on, in exactly one of the two fields.

    `text` if they are valid UTF-8, otherwise `base64`, for example because the piece ends inside a
    character.
    """

    attempt: int
    rank: int
    offset: int
    text: str | None = None
    base64: str | None = None

    @classmethod
    def of(cls, *, attempt: int, rank: int, offset: int, data: bytes) -> Self:
        """Return the piece that holds `data`."""
        try:
            return cls(attempt=attempt, rank=rank, offset=offset, text=data.decode())
        except UnicodeDecodeError:
            encoded = b64encode(data).decode()
            return cls(attempt=attempt, rank=rank, offset=offset, base64=encoded)

    @property
    def data(self) -> bytes:
        """The bytes. Raises ValueError if `base64` is not valid."""
        if self.text is not None:
            return self.text.encode()
        return b64decode(self.base64 or "", validate=True)
