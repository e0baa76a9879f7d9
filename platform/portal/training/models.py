"""Code snapshots, jobs, their checkpoints and the files they keep."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, User
from portal.compute.models import EnvironmentVersion
from portal.core.models import IdField, Row
from portal.storage.models import StoredFile
from portal.workloads.models import Workload


class Snapshot(Row):
    """Code as it was, of one project: a tar in the store, named by the SHA-256 of its bytes.

    `scripts` holds the first Python files in it, to be suggested. `marks` is described in
    `portal.training.file_index` and is an index of all file names.
    """

    id = IdField("snap")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    digest = models.CharField(max_length=64)
    file = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="+")
    files = models.PositiveIntegerField()
    scripts = models.JSONField(default=list)
    marks = models.BinaryField(default=bytes)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["project", "digest"], name="snapshot_once_a_project"),
        ]


class JobQuerySet(models.QuerySet["Job"]):
    """Queries of jobs."""

    def of_project(self, project: Project) -> "JobQuerySet":
        """Jobs of one project, with what every answer about them needs."""
        jobs = self.filter(workload__project=project).select_related(
            *("workload__project", "workload__tier", "workload__pool"),
            *("workload__submitted_by", "workload__team"),
            *("snapshot__file__blob", "environment_version__named"),
        )
        return jobs.defer("snapshot__marks").prefetch_related(
            "workload__leases", "workload__tier__prices"
        )

    def matching(
        self, *, state: str = "", text: str = "", submitted_by: str = "", tier: str = ""
    ) -> "JobQuerySet":
        """Filter the jobs. An empty filter returns all."""
        jobs = self
        if state:
            jobs = jobs.filter(workload__state=state)
        if text:
            jobs = jobs.filter(Q(workload__name__icontains=text) | Q(script__icontains=text))
        if submitted_by:
            jobs = jobs.filter(workload__submitted_by__email__iexact=submitted_by)
        if tier:
            jobs = jobs.filter(workload__tier__slug=tier)
        return jobs


class Job(Row):
    """Job as submitted. Its state is on the workload, which has the same id.

    `datasets` are the versions it was submitted with, such as `digits:3`. `strategy_taken` and
    `strategy_reason` are what the job itself says: which strategy it trains by and why.
    `requirements_file` is the path in the snapshot that its requirements were read from. With
    `finds_requirements` the request left it to the files in the snapshot. `environment_version` is
    the version of a named environment that it runs in. `python` is the version of Python that the
    request named, empty for none. `variables` are environment variables of its schedule.
    """

    workload = models.OneToOneField(
        Workload, primary_key=True, on_delete=models.PROTECT, related_name="+"
    )
    snapshot = models.ForeignKey(Snapshot, on_delete=models.PROTECT, related_name="+")
    script = models.CharField(max_length=500)
    args = models.JSONField(default=list)
    params = models.JSONField(default=dict)
    strategy = models.CharField(max_length=200, blank=True)
    strategy_taken = models.CharField(max_length=200, blank=True)
    strategy_reason = models.CharField(max_length=2000, blank=True)
    requirements = models.TextField(blank=True)
    requirements_file = models.CharField(max_length=500, blank=True, default="")
    finds_requirements = models.BooleanField(default=False)
    environment_version = models.ForeignKey(
        EnvironmentVersion, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    python = models.CharField(max_length=8, blank=True, default="", db_default="")
    git = models.JSONField(null=True, blank=True)
    datasets = models.JSONField(default=list)
    variables = models.JSONField(null=True, blank=True)
    cloned_from = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )

    objects: ClassVar[JobQuerySet] = JobQuerySet.as_manager()  # type: ignore[assignment]


class KeptFiles(Row):
    """Files that one task of a job kept at the end of one attempt.

    `report` is a `slipway.schemas.kept_files.FilesReport`.
    """

    id = IdField("kept")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="files")
    attempt = models.PositiveIntegerField()
    rank = models.PositiveIntegerField()
    report = models.JSONField()

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["job", "attempt", "rank"], name="kept_files_once_a_task"
            ),
        ]


class CheckpointQuerySet(models.QuerySet["Checkpoint"]):
    """Queries of checkpoints."""

    def copied(self) -> "CheckpointQuerySet":
        """Checkpoints that are in the store."""
        return self.filter(file__isnull=False)

    def forget(self) -> None:
        """Forget checkpoints that are no longer on their node. Copies in the store stay."""
        self.copied().update(is_on_node=False)
        self.filter(file__isnull=True).delete()


class Checkpoint(Row):
    """A checkpoint of a job that is whole and in its place. A step saved again replaces itself.

    It lies on the node that saved it while `is_on_node`, and as `file` in the store, copied there
    at `copied_at`, if it is the one of the job that is. What is in neither place has no row.
    """

    id = IdField("ckpt")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="checkpoints")
    step = models.BigIntegerField()
    size_bytes = models.BigIntegerField()
    attempt = models.PositiveIntegerField()
    is_on_node = models.BooleanField(default=True)
    file = models.ForeignKey(
        StoredFile, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    copied_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[CheckpointQuerySet] = CheckpointQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["job", "step"], name="checkpoint_once_a_step"),
            models.UniqueConstraint(
                fields=["job"], condition=Q(file__isnull=False), name="checkpoint_one_copy_a_job"
            ),
            models.CheckConstraint(
                condition=Q(is_on_node=True) | Q(file__isnull=False), name="checkpoint_somewhere"
            ),
        ]
