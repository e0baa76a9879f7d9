"""Wire schemas of pipelines: steps with dependencies, most of which are jobs.

Under `/api/v1`:

GET    projects/{project}/pipelines/runs                        PageOf[PipelineRunOut]; ?q=
POST   projects/{project}/pipelines/runs                        PipelineRunIn → PipelineRunOut (201)
POST   projects/{project}/pipelines/plan                        PipelineRunIn → PipelinePlan
GET    projects/{project}/pipelines/runs/{run}                  PipelineRunOut, with its steps
POST   projects/{project}/pipelines/runs/{run}/cancel           → PipelineRunOut
POST   projects/{project}/pipelines/runs/{run}/resume           → PipelineRunOut
POST   projects/{project}/pipelines/runs/{run}/steps/{step}/decision   StepDecision → PipelineRunOut
PUT    projects/{project}/pipelines/jobs/{job}/outputs          StepOutputs: only the job itself

References and conditions are described in `slipway.schemas.pipeline_references`, and
`slipway.schemas.pipeline_checks` says which pipelines are valid.
"""

import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from slipway.schemas.backends import DEFAULT_BACKEND, BackendName
from slipway.schemas.base import (
    AnswerSchema,
    Digest,
    JsonObject,
    JsonValue,
    Line,
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
from slipway.schemas.batch_predictions import OnError
from slipway.schemas.datasets import DatasetReference
from slipway.schemas.environments import EnvironmentReference
from slipway.schemas.frameworks import FrameworkName
from slipway.schemas.kept_files import (
    DEFAULT_KEEP,
    DEFAULT_LIMIT_BYTES,
    MAX_LIMIT_BYTES,
    MOST_PATTERNS,
    Pattern,
)
from slipway.schemas.pipeline_references import STEP_NAME, VALUE_NAME
from slipway.schemas.sweeps import (
    MAX_CONSTRAINTS,
    MAX_ETA,
    MAX_MIN_VALUES,
    MAX_PARALLEL,
    MAX_SOURCES,
    Algorithm,
    Scheduler,
    SweepQuote,
    WarmStartSource,
)
from slipway.schemas.tables import ColumnName
from slipway.schemas.training import Argument, GitFacts, Quote, Tags

MOST_STEPS = 100
MOST_ITEMS = 100
MAX_OUTPUT_BYTES = 32 * 1024
MAX_PIPELINE_BYTES = 256 * 1024
# Folder, in the working folder of a job, of executed notebooks.
EXECUTED_FOLDER = "step-outputs"

StepName = Annotated[Line, line_field(f"^{STEP_NAME}$")]
ValueName = Annotated[Line, line_field(f"^{VALUE_NAME}$")]
ValueType = Literal["string", "integer", "number", "boolean", "array", "object", "any"]
OutputType = Literal["string", "integer", "number", "boolean", "array", "object", "any", "file"]
StepKind = Literal["job", "notebook", "sweep", "predict", "register", "promote", "approval"]
RunOn = Literal["success", "failure", "always"]
Approvers = Literal["contributor", "maintainer", "owner"]


class PipelineRunState(StrEnum):
    """State of a run of a pipeline."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Return True if it starts no more steps, unless it is resumed."""
        return self != PipelineRunState.RUNNING


class StepState(StrEnum):
    """State of a step in a run.

    `reused` steps have the outputs of an earlier run. `skipped` ones were left out by a condition
    or because of a step before them.
    """

    WAITING = "waiting"
    RUNNING = "running"
    APPROVAL = "approval"
    SUCCEEDED = "succeeded"
    REUSED = "reused"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_outputs(self) -> bool:
        """Return True if later steps can use its outputs."""
        return self in (StepState.SUCCEEDED, StepState.REUSED)

    @property
    def has_ended(self) -> bool:
        """Return True if it has ended, unless its run is resumed."""
        return self not in (StepState.WAITING, StepState.RUNNING, StepState.APPROVAL)


class PipelineParameter(RequestSchema):
    """A parameter of a pipeline. Without a `default` every run must name its value."""

    type: ValueType = "any"
    default: JsonValue = None


class StepOutput(RequestSchema):
    """An output of a step. A `file` is a file or folder that the job keeps, at `path` if named."""

    type: OutputType = "any"
    path: RelativePath | None = None


class StepIn(RequestSchema):
    """A step of a pipeline.

    A `job` runs `script`: a file of the snapshot, or `FILE.py::FUNCTION` for a function of it.
    `inputs` reach it as parameters. `outputs` are reported by the job; a number it does not report
    is the last value of the metric of that name. `register` makes the files at `source` the next
    version of `model`, and has the outputs `version` and `uri`. `promote` moves `version` of
    `model` to a `stage` or an `alias`. `approval` waits for a person with the role `approvers`.

    `notebook` runs the notebook `script` of the snapshot as a job, with `inputs` as the values of
    its cell tagged `parameters`. Its outputs are `notebook`, the file with the results of its
    cells, `run`, and those in `outputs`.

    `sweep` runs `script` in `trials` jobs with different values of `parameters`, and `inputs` that
    are the same for all. A parameter is a range as text (`loguniform(1e-4,1e-1)`), a list of
    choices, or an object as in a sweep; `metric` is `accuracy:max` or an object, a constraint
    `latency_ms<=20` or an object. All of them, `trials` and `warm_start` may have references. Its
    outputs are `best_value`, `parameters`, `best_job` and `best_run`, and those in `outputs`: files
    of the best trial at their `path`, and numbers that are its last metrics of that name. `retries`
    are those of each trial.

    `predict` is a batch prediction: `data` (`sales:3`), predicted with `version` of `model`, become
    a version of the dataset `output`. `model` may also be `digits@3` or `models:/digits/3`. The
    fields `table`, `columns`, `keep_columns`, `on_error` and `environment` are those of a batch
    prediction. Its outputs are `data`, the version that it has made, `rows` and `failed_rows`.

    A step waits for those it refers to and those in `after`. It runs if all have succeeded. With
    `run_on: failure` it runs if one before it has failed, with `always` in any case. It is skipped
    unless `when` holds. `foreach` starts it once for each item of a list, which is `${item}`. With
    `cache`, equal work of an earlier run is not done again. `retries` are further jobs after a
    failure. All other fields are those of a job.
    """

    name: StepName
    kind: StepKind = "job"
    script: RelativePath | None = None
    args: list[Argument] = Field(default=[], max_length=200)
    inputs: Annotated[JsonObject, Field(max_length=100)] = {}
    outputs: dict[ValueName, StepOutput] = Field(default={}, max_length=100)
    after: list[StepName] = Field(default=[], max_length=MOST_STEPS)
    when: Annotated[Line, Field(min_length=1, max_length=500)] | None = None
    foreach: JsonValue = None
    run_on: RunOn = "success"
    retries: Whole = Field(default=0, ge=0, le=10)
    cache: Truth = True
    model: Annotated[Line, Field(min_length=1, max_length=250)] | None = None
    source: Annotated[Line, Field(min_length=1, max_length=500)] | None = None
    version: JsonValue = None
    data: Annotated[Line, Field(min_length=1, max_length=200)] | None = None
    output: Annotated[Line, Field(min_length=1, max_length=200)] | None = None
    table: Annotated[Line, Field(min_length=1, max_length=1000)] | None = None
    columns: list[ColumnName] | None = Field(default=None, max_length=1000)
    keep_columns: list[ColumnName] | None = Field(default=None, max_length=1000)
    on_error: OnError = "stop"
    stage: Annotated[Line, Field(min_length=1, max_length=100)] | None = None
    alias: Annotated[Line, Field(min_length=1, max_length=100)] | None = None
    message: Annotated[Text, Field(max_length=1000)] = ""
    approvers: Approvers = "maintainer"
    parameters: Annotated[JsonObject, Field(max_length=50)] = {}
    metric: JsonValue = None
    constraints: list[JsonValue] = Field(default=[], max_length=MAX_CONSTRAINTS)
    warm_start: list[WarmStartSource] = Field(default=[], max_length=MAX_SOURCES)
    algorithm: Algorithm = "tpe"
    trials: JsonValue = 20
    parallel: Whole = Field(default=2, ge=1, le=MAX_PARALLEL)
    seed: Whole = Field(default=0, ge=0, le=2**31 - 1)
    scheduler: Scheduler = "none"
    min_values: Whole = Field(default=1, ge=1, le=MAX_MIN_VALUES)
    eta: Whole = Field(default=3, ge=2, le=MAX_ETA)
    tier: Slug | None = None
    pool: Slug | None = None
    nodes: Whole = Field(default=1, ge=1, le=1024)
    procs: Whole = Field(default=1, ge=1, le=256)
    strategy: Annotated[Line, Field(max_length=200)] | None = None
    framework: FrameworkName | None = None
    backend: BackendName = DEFAULT_BACKEND
    requirements: Annotated[Text, Field(max_length=100_000)] | None = None
    requirements_file: RelativePath | None = None
    environment: EnvironmentReference | None = None
    python: PythonVersion | None = None
    datasets: list[DatasetReference] = Field(default=[], max_length=20)
    tags: Tags = {}
    max_hours: Number | None = Field(default=None, gt=0, le=8760)
    hang_after_minutes: Whole | None = Field(default=30, ge=1, le=10_080)
    preemptible: Truth = False
    keep: list[Pattern] = Field(default=DEFAULT_KEEP, max_length=MOST_PATTERNS)
    keep_limit_bytes: Whole = Field(default=DEFAULT_LIMIT_BYTES, ge=0, le=MAX_LIMIT_BYTES)

    @property
    def is_job(self) -> bool:
        """Return True if it runs code as one job."""
        return self.kind in ("job", "notebook")

    @property
    def runs_code(self) -> bool:
        """Return True if it runs code of the snapshot, in one or more jobs."""
        return self.is_job or self.kind == "sweep"

    @property
    def has_cost(self) -> bool:
        """Return True if it runs in jobs, which cost."""
        return self.runs_code or self.kind == "predict"

    @property
    def is_notebook(self) -> bool:
        """Return True if its job runs a notebook."""
        return self.kind == "notebook"

    @property
    def executed_path(self) -> str:
        """Return where the job of a notebook writes the notebook with its results."""
        return f"{EXECUTED_FOLDER}/{str(self.script).rpartition('/')[2]}"


class PipelineIn(RequestSchema):
    """A pipeline: parameters, and steps in any order."""

    name: Slug
    description: Annotated[Text, Field(max_length=2000)] = ""
    parameters: dict[ValueName, PipelineParameter] = Field(default={}, max_length=100)
    steps: list[StepIn] = Field(min_length=1, max_length=MOST_STEPS)

    def step(self, name: str) -> StepIn:
        """Return the step of a name."""
        return next(step for step in self.steps if step.name == name)


class PipelineRunIn(RequestSchema):
    """A run to start. `parameters` are values, `snapshot` is the code of its jobs.

    With `force` no output of an earlier run is reused.
    """

    pipeline: PipelineIn
    parameters: Annotated[JsonObject, Field(max_length=100)] = {}
    snapshot: Digest | None = None
    git: GitFacts | None = None
    force: Truth = False


class StepDecision(RequestSchema):
    """The decision about a step that waits for approval."""

    verdict: Literal["approve", "decline"]
    note: Annotated[Text, Field(max_length=500)] = ""


def _small(outputs: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(outputs)) > MAX_OUTPUT_BYTES:
        raise ValueError(f"is larger than {MAX_OUTPUT_BYTES // 1024} KiB; keep a file instead")
    return outputs


class StepOutputs(RequestSchema):
    """Outputs of the step whose job sends this. Files are paths below the working folder."""

    outputs: Annotated[JsonObject, Field(max_length=100), AfterValidator(_small)]


class StepRunOut(AnswerSchema):
    """A step in a run. `item` is the number of an item of a fan-out, null for the step itself.

    `reused_from` is the run whose outputs it has. `explanation` says why it is in its state.
    `attempt` counts its jobs or sweeps, and `job` or `sweep` is the newest of them.
    """

    step: str
    kind: StepKind
    item: int | None = None
    state: StepState
    explanation: str = ""
    next_step: str | None = None
    attempt: int = 0
    job: str | None = None
    sweep: str | None = None
    outputs: dict[str, Any] = {}
    reused_from: str | None = None
    decided_by: str | None = None
    cost_nano_usd: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None


class PipelineRunOut(AnswerSchema):
    """A run of a pipeline. `owner` pays for the jobs that it starts.

    `attempt` counts how often it was started, with resumptions. `steps` and `pipeline` are left out
    of lists. `counts` has the number of steps in each state.
    """

    id: str
    project: str
    name: str
    state: PipelineRunState
    explanation: str = ""
    next_step: str | None = None
    attempt: int
    force: bool
    parameters: dict[str, Any]
    snapshot: str | None = None
    owner: str
    counts: dict[str, int] = {}
    cost_nano_usd: int = 0
    pipeline: PipelineIn | None = None
    steps: list[StepRunOut] = []
    created_at: datetime
    ended_at: datetime | None = None


class PlannedStep(AnswerSchema):
    """A step as a plan expects it.

    `reuse` has the outputs of `reused_from`, `run` is done, `depends` is not known before the steps
    that it waits for have ended, `wait` is an approval. `quote` is the cost of one job,
    `sweep_quote` that of one sweep.
    """

    step: str
    kind: StepKind
    action: Literal["reuse", "run", "depends", "wait", "skip"]
    explanation: str
    items: int | None = None
    reused_from: str | None = None
    quote: Quote | None = None
    sweep_quote: SweepQuote | None = None


class PipelinePlan(AnswerSchema):
    """Actions and cost of a run before it starts. Steps are in an order in which they can run.

    `expected_nano_usd` is the cost of what is not reused, by similar jobs of the past; null if one
    of the steps has no history. `nano_usd_per_hour` is the cost if all steps ran at once.
    """

    steps: list[PlannedStep]
    reused: int
    to_run: int
    nano_usd_per_hour: int
    expected_nano_usd: int | None = None
