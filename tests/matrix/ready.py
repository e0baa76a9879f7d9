"""Bringing the world into the state in which a route has something to change."""

from portal.accounts.models import Project, User
from portal.compute.models import NamedEnvironment, Node, Tier
from portal.compute.services.nodes import cordon_node
from portal.core import clock
from portal.datasets.models import Version
from portal.datasets.services.datasets import delete_dataset, delete_version
from portal.endpoints.models import Endpoint, Replica, Rollout
from portal.experiments.services.deletion import delete_experiment, delete_runs
from portal.notebooks.models import NotebookFile
from portal.notebooks.services.files_deletion import delete_notebook
from portal.pipelines.models import PipelineRun, ProjectSchedule, StepRun
from portal.registry.models import PromotionRequest, VersionRecord
from portal.sweeps.models import Sweep, Trial
from portal.workloads.models import Workload
from slipway.schemas.datasets import VersionState
from tests.matrix.batched import ready_data
from tests.matrix.desks import open_desk, start_desk
from tests.matrix.world import World

_BY_NAME = (
    *("/reports/", "/sweeps/", "/schedules/", "/pipelines/", "environments/{environment}"),
    *("/service-accounts/", "/batch-predictions"),
)
_DRAFTS = ("/versions/{version}/files", "/append", "/commit")


def make_ready(world: World, template: str) -> None:
    """Let there be what a route changes: a thing deleted to restore, one stopped to resume."""
    project = world.people.vision
    if "/datasets/" in template:
        _ready_data(world, template)
    elif "/endpoints/" in template:
        _ready_endpoint(world, template)
    elif "/notebook" in template or "/servers/{server}/" in template:
        _ready_notebook(world, template)
    elif any(part in template for part in _BY_NAME):
        _ready_by_name(world, template)
    elif template.endswith("/experiments/{experiment}/restore"):
        delete_experiment(project=project, experiment_id=int(world.own["experiment"]))
    elif template.endswith("/runs/restore"):
        delete_runs(project=project, run_ids=[world.own["run"]])
    elif template.endswith("/restore"):
        Project.objects.filter(pk=project.pk).update(archived_at=clock.now())
    elif template.endswith("/uncordon"):
        cordon_node(node=Node.objects.get(name=world.own["node"]))
    elif template.endswith("/offer"):
        Tier.objects.filter(slug=world.own["tier"]).update(is_active=False)
    elif template.endswith("/jobs/{job}/resume"):
        Workload.objects.filter(pk=world.own["workload"]).update(
            state="stopped", reason="budget", ended_at=clock.now()
        )
    elif "/requests/{request_id}/" in template:
        # Nobody decides about what they made or asked for.
        VersionRecord.objects.update(author=world.people.bob)
        PromotionRequest.objects.update(requested_by=world.people.bob)


def _ready_by_name(world: World, template: str) -> None:
    """Pause a sweep or a schedule, end a trial, let a pipeline fail, archive an environment.

    A service account is disabled. Data get a row to predict.
    """
    if "/batch-predictions" in template:
        ready_data(world.own["data version"])
    if template.endswith("/service-accounts/{account}/enable"):
        users = User.objects.filter(service_account__name=world.own["service account"])
        users.update(is_active=False)
    if template.endswith("/schedules/{schedule}/resume"):
        schedule = ProjectSchedule.objects.filter(name=world.own["schedule"])
        schedule.update(state="paused", next_at=None)
    if template.endswith("/schedules/{schedule}/hook"):
        schedule = ProjectSchedule.objects.filter(name=world.own["schedule"])
        start = {"cron": "", "trigger": {"event": "webhook"}, "next_at": None}
        schedule.update(**start, events_from=clock.now())
    if template.endswith("/decision"):
        StepRun.objects.filter(run=world.own["pipeline run"], step="ok").update(state="approval")
    if template.endswith("/{pipeline_run}/resume"):
        runs = PipelineRun.objects.filter(pk=world.own["pipeline run"])
        runs.update(state="failed", ended_at=clock.now())
        StepRun.objects.filter(run__in=runs).update(state="failed")
    if "/sweeps/{sweep}/repeat" in template:
        Trial.objects.get_or_create(
            sweep_id=world.own["sweep"],
            number=0,
            defaults={
                "state": "complete",
                "values": {"lr": 0.5},
                "value": 0.9,
                "job_id": world.own["workload"],
                "ended_at": clock.now(),
            },
        )
    if template.endswith("/sweeps/{sweep}/resume"):
        Sweep.objects.filter(pk=world.own["sweep"]).update(state="paused")
    if template.endswith("/build"):
        Node.objects.update(state="ready")
    if "environments" in template and template.endswith("/restore"):
        environments = NamedEnvironment.objects.filter(name=world.own["named environment"])
        environments.update(archived_at=clock.now())


def _ready_data(world: World, template: str) -> None:
    version = Version.objects.complete().get(pk=world.own["data version"])
    if template.endswith(("/versions/{version}/restore", "/v/{version}/restore")):
        delete_version(version=version)
    elif template.endswith("/restore"):
        delete_dataset(dataset=version.dataset)
    elif template.endswith(_DRAFTS):
        Version.objects.filter(pk=version.pk).update(state=VersionState.DRAFT, number=None)


def _ready_endpoint(world: World, template: str) -> None:
    endpoint = Endpoint.objects.get(name=world.own["endpoint"])
    if template.endswith("/resume"):
        Endpoint.objects.filter(pk=endpoint.pk).update(state="paused")
    elif template.endswith("/rollback"):
        serving, standby = endpoint.revisions.order_by("number")
        Replica.objects.create(
            endpoint=endpoint,
            revision=standby,
            secret=b"sealed",
            state="ready",
            address="127.0.0.1:1",
        )
        Rollout.objects.create(
            endpoint=endpoint,
            revision=serving,
            previous=standby,
            made_by=endpoint.made_by,
            plan="all_at_once",
            steps=[],
            state="done",
        )


def _ready_notebook(world: World, template: str) -> None:
    if template.endswith("/servers/{server}/stop"):
        start_desk(world.own["notebook server"])
    elif template.endswith("/undelete"):
        delete_notebook(file=NotebookFile.objects.get(pk=world.own["notebook"]))
    elif template.endswith("/servers/{server}/key"):
        open_desk(world.own["notebook server"])
