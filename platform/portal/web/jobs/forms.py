"""The form of a new job, which is also that of a clone."""

import shlex
from typing import Any

from django import forms
from django.http import QueryDict
from pydantic import ValidationError

from portal.accounts.models import Project
from portal.core.errors import SlipwayError
from portal.core.validation_messages import validation_predicate
from portal.training.models import Job, Snapshot
from portal.web.base.environments import EnvironmentField
from portal.web.base.form_submission import error_text
from portal.web.base.hardware import TierField
from portal.web.base.pools import PoolField
from portal.web.base.pythons import PythonField
from portal.web.base.shortlist import Shortlist, shortlist
from portal.workloads.specs import RunSpec
from slipway.schemas.backends import BACKENDS, DEFAULT_BACKEND
from slipway.schemas.frameworks import FRAMEWORKS
from slipway.schemas.kept_files import DEFAULT_KEEP, DEFAULT_LIMIT_BYTES
from slipway.schemas.training import JobIn

RECENT_CODE = 20
MAX_NODES, MAX_PROCS, MAX_ATTEMPTS = 1024, 256, 20
# Strategies, each with its description for users.
STRATEGIES = {
    "auto": "Slipway chooses by model size and hardware, and explains the choice.",
    "ddp": "Every rank holds the whole model and a share of each batch. Start here.",
    "zero1": "Like ddp with a sharded optimizer state: saves memory at no cost in speed.",
    "zero2": "Gradients are sharded too: saves more memory, with a little more communication.",
    "zero3": "The model itself is sharded (FSDP): for models that do not fit on one GPU.",
    "zero3+offload": (
        "Like zero3 with weights offloaded to host memory: fits larger models, runs slower."
    ),
    "pipeline=2": "Layers are split into stages, one after the other: for deep models.",
    "tensor=2": "Each layer is split across ranks of one machine: for wide layers.",
    "ps=1:async": "A parameter server; workers never wait for each other.",
}
_GB = 10**9
_TEXT = {"autocomplete": "off", "spellcheck": "false"}


class NewJob(forms.Form):
    """New job: script, hardware, number of tasks. `payload` has all of it once the form is valid.

    Code is a snapshot taken before: an upload is turned into one by the view, so that a form that
    is refused still has it.
    """

    snapshot = forms.CharField(label="Code", required=False, max_length=64)
    script = forms.CharField(
        max_length=500,
        help_text="The path of the script inside the code.",
        widget=forms.TextInput(attrs={**_TEXT, "list": "scripts", "placeholder": "train.py"}),
    )
    args = forms.CharField(
        label="Arguments",
        required=False,
        max_length=20_000,
        help_text="As you would type them after the script in a terminal.",
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "--epochs 10"}),
    )
    params = forms.CharField(
        label="Parameters",
        required=False,
        max_length=65_536,
        strip=False,
        help_text=(
            "One name=value per line. The script receives them as --name=value, and you can "
            "compare runs by them."
        ),
        widget=forms.Textarea(attrs={**_TEXT, "rows": 3, "placeholder": "lr=0.1"}),
    )
    tier = TierField()
    pool = PoolField()
    nodes = forms.IntegerField(
        label="Nodes",
        min_value=1,
        max_value=MAX_NODES,
        help_text="Each node provides one place of the tier.",
    )
    procs = forms.IntegerField(
        label="Processes per node", min_value=1, max_value=MAX_PROCS, help_text="One for each GPU."
    )
    preemptible = forms.BooleanField(
        label="Preemptible: cheaper, may be moved for other work",
        required=False,
        help_text=(
            "Other work may take its place: it gets time to save, waits in its old place in the "
            "queue, and resumes from its checkpoint. Not in pools."
        ),
    )
    strategy = forms.CharField(
        required=False,
        max_length=200,
        help_text=(
            "How ranks share the training. Leave it empty for scripts that handle this "
            "themselves (torchrun, Lightning, accelerate)."
        ),
        widget=forms.TextInput(attrs={**_TEXT, "list": "strategies", "placeholder": "none"}),
    )
    framework = forms.ChoiceField(
        choices=[("", "none"), *((info.name, info.label) for info in FRAMEWORKS.values())],
        required=False,
        help_text=(
            "Forms a cluster over all processes. The script runs once and connects to it by "
            "ray.init(), Client() or ParameterServerStrategy()."
        ),
        widget=forms.Select,
    )
    backend = forms.ChoiceField(
        label="Runs in",
        choices=[(info.name, info.label) for info in BACKENDS.values()],
        required=False,
        help_text="A container isolates more and starts more slowly; its node needs Docker.",
        widget=forms.Select,
    )
    datasets = forms.CharField(
        required=False,
        max_length=1500,
        help_text=(
            "Dataset versions to read, such as digits:3; in the script "
            'slipway.dataset("digits"). Separate several with spaces.'
        ),
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "digits:3"}),
    )
    environment = EnvironmentField(
        help_text=(
            "Automatic: the requirements.txt, uv.lock, poetry.lock, conda-lock.yml, "
            "environment.yml or pyproject.toml nearest to the script (in a container a Dockerfile, "
            "too, and no conda), then the default environment."
        )
    )
    python = PythonField(help_text="The versions that nodes have. A named environment has its own.")
    requirements = forms.CharField(
        label="Own packages",
        required=False,
        max_length=65_536,
        help_text=(
            "The text of a requirements.txt, for this job alone. It is used instead of an "
            "environment."
        ),
        widget=forms.Textarea(
            attrs={**_TEXT, "rows": 4, "placeholder": "torch==2.13.0\nscikit-learn"}
        ),
    )
    max_attempts = forms.IntegerField(
        label="Attempts",
        min_value=1,
        max_value=MAX_ATTEMPTS,
        help_text=(
            "Maximum number of failures. Lost nodes and preemptions do not count; errors in the "
            "script are not retried."
        ),
    )
    max_hours = forms.FloatField(
        label="Maximum lifetime, in hours",
        required=False,
        min_value=0.01,
        max_value=8760,
        help_text="Empty: no limit.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    priority = forms.IntegerField(
        min_value=-100, max_value=100, help_text="Higher priorities go first within this project."
    )
    keep_failed_minutes = forms.IntegerField(
        label="Keep the task after a failure, in minutes",
        required=False,
        min_value=0,
        help_text=(
            "So that you can open a shell in it. It costs as while it runs. Empty: it ends at once."
        ),
    )
    keep = forms.CharField(
        label="Files to keep",
        required=False,
        max_length=2000,
        help_text=(
            "Of the files that the job writes in its working folder: * for all, or globs such as "
            "outputs/* *.ckpt, separated by spaces. They become artifacts of its run."
        ),
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "*"}),
    )
    keep_limit_gb = forms.FloatField(
        label="Most to keep, in GB for each node",
        min_value=0,
        max_value=1000,
        required=False,
        help_text="0: nothing is kept. Files that do not fit are listed on the job's page.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    name = forms.CharField(
        required=False,
        max_length=100,
        help_text="Empty: the name of the script.",
        widget=forms.TextInput(attrs=_TEXT),
    )

    tags = forms.CharField(
        required=False,
        max_length=1200,
        help_text=(
            "Such as team=vision paper=icml; used to break down spend. Separate several with "
            "spaces."
        ),
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "team=vision"}),
    )

    def __init__(
        self, data: QueryDict | None, *, project: Project, source: Job | None, **kwargs: Any
    ) -> None:
        super().__init__(data, **kwargs)
        self.source = source
        self.payload: JobIn | None = None
        self.code = _code_of(project, str(self["snapshot"].value() or ""))

    @property
    def scripts(self) -> list[str]:
        """The scripts of the chosen code, to be suggested."""
        chosen = self["snapshot"].value()
        return next((list(code.scripts) for code in self.code if code.digest == chosen), [])

    def clean_args(self) -> list[str]:
        """Split as a shell does."""
        try:
            return shlex.split(self.cleaned_data["args"])
        except ValueError as error:
            raise forms.ValidationError(f"A quotation mark is left open ({error}).") from error

    def clean_datasets(self) -> list[str]:
        """Read the references, separated by spaces or commas."""
        return str(self.cleaned_data["datasets"]).replace(",", " ").split()

    def clean_keep(self) -> list[str]:
        """Read globs, separated by spaces. None means all files."""
        return str(self.cleaned_data["keep"]).split() or [*DEFAULT_KEEP]

    def clean_tags(self) -> dict[str, str]:
        """Read name=value, separated by spaces."""
        return pairs(str(self.cleaned_data["tags"]).split())

    def clean_params(self) -> dict[str, str]:
        """Read a line each."""
        lines = self.cleaned_data["params"].splitlines()
        return pairs([line for line in lines if line.strip()])

    def clean(self) -> dict[str, Any]:
        """Build the request. Validation errors of the schema are shown next to their fields."""
        data = super().clean() or {}
        if not data.get("snapshot") and "code" not in self.errors:
            self.add_error("snapshot", "Choose a file or a folder, or the code of an earlier job.")
        if self.errors:
            return data
        settings = self.job_settings(data)
        values_by_name = {
            name: value for name, value in settings.items() if value not in (None, "")
        }
        limit_gb = values_by_name.pop("keep_limit_gb", None)
        if limit_gb is not None:
            values_by_name["keep_limit_bytes"] = round(limit_gb * _GB)
        try:
            self.payload = JobIn.model_validate(
                values_by_name | self._inherited_settings(data["snapshot"])
            )
        except ValidationError as error:
            for fault in error.errors():
                field = str(fault["loc"][0]) if fault["loc"] else ""
                message = f"This {validation_predicate(fault)}."
                self.add_error(field if field in self.fields else None, message)
        return data

    def job_settings(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the clean values that are part of the job. A form with more fields leaves some."""
        return data

    def _inherited_settings(self, digest: str) -> dict[str, Any]:
        """Return the settings that a clone inherits although the form does not show them."""
        source = self.source
        if source is None:
            return {}
        spec = RunSpec.model_validate(source.workload.spec)
        hang = spec.hang_after_s and max(1, round(spec.hang_after_s / 60))
        git = source.git if digest == source.snapshot.digest else None
        inherited = {"hang_after_minutes": hang, "git": git}
        if "pool" not in self.data:  # the form has no picker where there is no pool
            inherited["pool"] = source.workload.pool and source.workload.pool.name
        return inherited

    def refuse_code(self, error: SlipwayError) -> None:
        """Show the error of an upload next to the choice of code."""
        self.add_error("snapshot", error_text(error))


def pairs(texts: list[str]) -> dict[str, str]:
    """Parse name=value of each text, or raise ValidationError."""
    result: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise forms.ValidationError(f"“{text[:40]}” must have the form name=value.")
        result[name.strip()] = value.strip()
    return result


def _code_of(project: Project, chosen: str) -> Shortlist[Snapshot]:
    """Return the newest code of the project, and the chosen one wherever it is."""
    snapshots = Snapshot.objects.filter(project=project).defer("marks").select_related("created_by")
    newest = shortlist(snapshots.order_by("-pk"), RECENT_CODE)
    if chosen and all(code.digest != chosen for code in newest):
        older = snapshots.filter(digest=chosen)[:1]
        newest += older
        newest.left_out -= len(older)
    return newest


def fresh(tier: str) -> dict[str, Any]:
    """Return the initial values of an empty form."""
    return {
        "tier": tier,
        "nodes": 1,
        "procs": 1,
        "max_attempts": 3,
        "priority": 0,
        "keep": " ".join(DEFAULT_KEEP),
        "keep_limit_gb": DEFAULT_LIMIT_BYTES / _GB,
        "backend": DEFAULT_BACKEND,
    }


def clone_initial(job: Job) -> dict[str, Any]:
    """Return the initial values for a clone: the job as it was submitted."""
    workload = job.workload
    spec = RunSpec.model_validate(workload.spec)
    return {
        "snapshot": job.snapshot.digest,
        "script": job.script,
        "args": shlex.join(job.args),
        "params": "\n".join(f"{name}={value}" for name, value in job.params.items()),
        "tier": workload.tier.slug,
        "pool": workload.pool and workload.pool.name,
        "nodes": workload.nodes,
        "procs": workload.procs,
        "strategy": job.strategy,
        "framework": spec.framework,
        "backend": workload.backend,
        "environment": job.environment_version and job.environment_version.reference,
        "requirements": ""
        if job.requirements_file or job.environment_version
        else job.requirements,
        "python": job.python,
        "datasets": " ".join(job.datasets),
        "max_attempts": workload.max_attempts,
        "preemptible": workload.is_preemptible,
        "max_hours": workload.max_lifetime_s and workload.max_lifetime_s / 3600,
        "priority": workload.priority,
        "keep_failed_minutes": spec.keep_failed_s // 60 or None,
        "keep": " ".join(spec.keep),
        "keep_limit_gb": spec.keep_limit_bytes / _GB,
        "name": workload.name,
        "tags": " ".join(f"{name}={value}" for name, value in workload.tags.items()),
    }
