"""Code and environment of two runs side by side, from what the runs and their jobs recorded."""

from collections.abc import Sequence
from dataclasses import dataclass

from portal.accounts.models import Project
from portal.compute.models import Environment
from portal.compute.resources import memory_text
from portal.core.errors import NotFound, SlipwayError
from portal.experiments.artifact_paths import artifact_path_of
from portal.experiments.factories import artifact_store
from portal.experiments.packages import (
    PackageChange,
    PackageList,
    package_changes,
    parse_packages,
)
from portal.experiments.ports import RunDetail
from portal.experiments.services.artifacts import artifact_of, read_artifact
from portal.experiments.services.job_runs import JOB_TAG
from portal.registry.logged_models import logged_models_of
from portal.training.models import Job
from slipway.requirement_files.conda_packages import locked_versions

MOST_BYTES = 512 * 1024
MOST_DIFF_CHARACTERS = 64 * 1024
_PACKAGES_FILE, _DIFF_FILE = "slipway/packages.txt", "slipway/uncommitted.diff"
_REQUIREMENTS = "requirements.txt"
# Files with the packages of a run that clients log, the most exact first.
_FILES = (_PACKAGES_FILE, _REQUIREMENTS, f"model/{_REQUIREMENTS}")


@dataclass(frozen=True)
class Fact:
    """One line about the code or the environment of both runs. Empty means not recorded."""

    label: str
    before: str
    after: str

    @property
    def differs(self) -> bool:
        """True if both are recorded, and not the same."""
        return bool(self.before and self.after) and self.before != self.after

    @property
    def is_partial(self) -> bool:
        """True if only one of the runs has recorded this."""
        return bool(self.before) != bool(self.after)


@dataclass(frozen=True)
class RecordedPackages:
    """The packages of a run. `source` says where they are recorded, empty if nowhere.

    `is_exact` if they are what was installed, not only what was asked for.
    """

    source: str
    packages: PackageList | None = None
    is_exact: bool = False
    fault: str = ""


@dataclass(frozen=True)
class CodeComparison:
    """Code and environment of `run` beside those of the baseline `base`.

    `diffs` are the uncommitted changes of both, None where none were recorded.
    """

    base: RunDetail
    run: RunDetail
    facts: Sequence[Fact]
    equal: Sequence[Fact]
    unrecorded: Sequence[str]
    diffs: tuple[str | None, str | None]
    packages: tuple[RecordedPackages, RecordedPackages]
    changes: Sequence[PackageChange]
    equal_packages: int

    @property
    def are_diffs_equal(self) -> bool:
        """True if the uncommitted changes are the same."""
        return self.diffs[0] == self.diffs[1]

    @property
    def are_alike(self) -> bool:
        """True if both lists of packages are of the same exactness, so that versions compare."""
        return self.packages[0].is_exact == self.packages[1].is_exact


def compare_code(project: Project, base: RunDetail, run: RunDetail) -> CodeComparison:
    """Compare code and environment of two runs of the project."""
    jobs = (_job_of(project, base), _job_of(project, run))
    before, after = (_facts_of(it, job) for it, job in zip((base, run), jobs, strict=True))
    lines = [
        Fact(label, before.get(label, ""), after.get(label, ""))
        for label in dict.fromkeys([*before, *after])
    ]
    packages = (_packages_of(project, base, jobs[0]), _packages_of(project, run, jobs[1]))
    lists = [it.packages for it in packages if it.packages is not None]
    both = lists if len(lists) == 2 else []
    changes = package_changes(both[0], both[1]) if both else []
    names = both[0].versions.keys() | both[1].versions.keys() if both else set()
    return CodeComparison(
        base=base,
        run=run,
        facts=sorted(
            (it for it in lines if it.differs or it.is_partial), key=lambda it: not it.differs
        ),
        equal=[it for it in lines if it.before and it.before == it.after],
        unrecorded=[it.label for it in lines if not it.before and not it.after],
        diffs=(_diff_of(project, base, jobs[0]), _diff_of(project, run, jobs[1])),
        packages=packages,
        changes=changes,
        equal_packages=len(names) - len(changes),
    )


def _job_of(project: Project, run: RunDetail) -> Job | None:
    """Return the job a run says it came from, when that is one of the project."""
    jobs = Job.objects.filter(pk=run.facts.tags.get(JOB_TAG, ""), workload__project=project)
    return jobs.select_related("workload__tier", "snapshot").defer("snapshot__marks").first()


def _facts_of(run: RunDetail, job: Job | None) -> dict[str, str]:
    """Return what is recorded by its label. Empty is not recorded."""
    tags = run.facts.tags
    git = (job.git if job else None) or {}
    dirty = {"true": "yes", "false": "no"}.get(tags.get("slipway.git.dirty", ""), "")
    if git:
        dirty = "yes" if git.get("is_dirty") else "no"
    memory = tags.get("slipway.memory_bytes", "")
    recorded = {
        "Source": tags.get("mlflow.source.name", ""),
        "Entry point": tags.get("mlflow.project.entryPoint", ""),
        "Commit": tags.get("mlflow.source.git.commit", ""),
        "Branch": tags.get("mlflow.source.git.branch", ""),
        "Repository": str(git.get("remote") or tags.get("mlflow.source.git.repoURL", "")),
        "Uncommitted changes": dirty,
        "Code snapshot": tags.get("slipway.snapshot", ""),
        "Arguments": "",
        "Datasets": ", ".join(
            f"{it.name} {it.digest}{f' ({it.context})' if it.context else ''}" for it in run.inputs
        ),
        "Python": tags.get("slipway.python", ""),
        "Environment": tags.get("slipway.environment", ""),
        "Hardware tier": tags.get("slipway.tier", ""),
        "Nodes x processes": tags.get("slipway.ranks", ""),
        "Strategy": tags.get("slipway.strategy", ""),
        "Machine": tags.get("slipway.host", ""),
        "CPUs": tags.get("slipway.cpus", ""),
        "Memory": memory_text(int(memory)) if memory.isdecimal() and len(memory) < 18 else memory,
        "GPUs": tags.get("slipway.gpus", ""),
    }
    if job is None:
        return recorded
    environment = Environment.objects.filter(digest=job.workload.environment).first()
    recorded |= {
        "Source": job.script,
        "Code snapshot": job.snapshot.digest,
        "Arguments": " ".join(map(str, job.args)) or "none",
        "Datasets": ", ".join(map(str, job.datasets)) or recorded["Datasets"],
        "Environment": job.workload.environment or "that of the installation",
        "Hardware tier": job.workload.tier.slug,
        "Nodes x processes": f"{job.workload.nodes} x {job.workload.procs}",
        "Backend": job.workload.backend,
    }
    if environment and not recorded["Python"]:
        recorded["Python"] = environment.python
    return recorded


def _text_of(project: Project, run: RunDetail, path: str) -> str | None:
    """Return a small text file of a run, None if there is none. Raises SlipwayError."""
    try:
        artifact = artifact_of(project_id=project.pk, run=run, path=path)
    except NotFound:
        return None
    length = min(artifact.size_bytes, MOST_BYTES)
    pieces = read_artifact(project_id=project.pk, run=run, artifact=artifact, length=length)
    return b"".join(pieces).decode(errors="replace")


def _diff_of(project: Project, run: RunDetail, job: Job | None) -> str | None:
    """Return the uncommitted changes of a run, its first MOST_DIFF_CHARACTERS."""
    text = str(((job.git if job else None) or {}).get("diff") or "")
    if not text:
        try:
            text = _text_of(project, run, _DIFF_FILE) or ""
        except SlipwayError:
            return None
    return text[:MOST_DIFF_CHARACTERS] or None


def _packages_of(project: Project, run: RunDetail, job: Job | None) -> RecordedPackages:
    """Return the packages of a run: as installed, of its environment, or of a model it logged."""
    try:
        text = _text_of(project, run, _PACKAGES_FILE)
        if text is not None:
            return RecordedPackages(_PACKAGES_FILE, parse_packages(text), is_exact=True)
        if job is not None and job.workload.environment:
            environment = Environment.objects.filter(digest=job.workload.environment).first()
            if environment is not None:
                is_locked = bool(environment.locked)
                locked = environment.locked
                if environment.conda:
                    locked = locked_versions(locked)
                return RecordedPackages(
                    "the environment of the job" if is_locked else "requirements of the job",
                    parse_packages(locked or environment.requirements),
                    is_exact=is_locked,
                )
        for path in _FILES[1:]:
            text = _text_of(project, run, path)
            if text is not None:
                return RecordedPackages(path, parse_packages(text))
        return _packages_of_model(project, run)
    except SlipwayError as error:
        return RecordedPackages("", fault=error.message)


def _packages_of_model(project: Project, run: RunDetail) -> RecordedPackages:
    """Return the requirements of the newest model that the run logged."""
    for model in logged_models_of(project.pk, run.facts.id):
        folder = artifact_path_of(project.pk, model.location)
        place = f"{folder}/{_REQUIREMENTS}"
        size_bytes = artifact_store().size_of(place) if folder else None
        if size_bytes is not None:
            pieces = artifact_store().read(place, start=0, length=min(size_bytes, MOST_BYTES))
            text = b"".join(pieces).decode(errors="replace")
            return RecordedPackages(f"{_REQUIREMENTS} of its model", parse_packages(text))
    return RecordedPackages("")
