"""Launching, starting again, stopping and deleting notebook servers."""

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.compute.models import EnvironmentVersion, Pool, Tier
from portal.compute.services.pool_accounts import account_name
from portal.compute.services.pools import usable_pool
from portal.compute.services.tiers import offered_tier
from portal.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from portal.core.text import clean_slug
from portal.notebooks.environments import chosen_version, environment_of
from portal.notebooks.kinds import KIND
from portal.notebooks.models import Server, ServerRun
from portal.notebooks.server_lifecycle import ALIVE, AT_REST
from portal.notebooks.server_transitions import announce, move_server
from portal.notebooks.urls import require_notebooks
from portal.notebooks.workload_sync import sync_server
from portal.workloads.feasibility import refuse_impossible
from portal.workloads.services.cancellation import stop_workload
from portal.workloads.services.relay import require_relay
from portal.workloads.services.submission import WorkloadRequest, submit_workload
from portal.workloads.specs import personal_key_of, spec_from
from slipway.schemas.backends import DEFAULT_BACKEND
from slipway.schemas.notebook_servers import NotebookState, ServerEdit, ServerIn, Weekday
from slipway.schemas.workloads import ReasonCode

MOST_A_PERSON = 20
# Folder shared by all servers of a project. Its files survive them, see `persistent_key`.
WORKSPACE = "workspace"
_ARGV = ("slipway-lab",)
_S_AN_HOUR = 3600
_S_A_MINUTE = 60


def launch_server(*, project: Project, by: User, spec: ServerIn) -> Server:
    """Create and start a notebook server. What can never run is refused before any change.

    Raises InvalidInput, naming the field, Forbidden for a service account, which cannot sign in to
    it, and Conflict where the person has one of that name.
    """
    if by.is_service_account:
        raise Forbidden(
            "Notebook servers belong to people, who sign in to them.",
            code="person_needed",
            next_step="Run the notebook as a job: `slipway notebook run NOTEBOOK`.",
        )
    require_notebooks()
    tier = offered_tier(spec.tier)
    name = clean_slug(spec.name, field="name")
    pool = notebook_pool(project, by, spec.pool)
    refuse_impossible(project=project, tier=tier, tasks=1, backend=DEFAULT_BACKEND, pool=pool)
    _require_free(project, by, name)
    version = chosen_version(
        project=project, requirements=spec.requirements, reference=spec.environment
    )
    environment = environment_of(
        project=project, by=by, requirements=spec.requirements, version=version
    )
    with transaction.atomic():
        server = _insert_server(project, by, name, tier, pool, spec, version)
        _start(server, by, environment)
        audit.record(
            "notebook.launch",
            kind="notebook",
            target=server,
            label=server.name,
            project=project,
            after={"tier": tier.slug, "idle_minutes": spec.idle_minutes}
            | ({"pool": pool.name} if pool is not None else {})
            | ({"framework": spec.framework} if spec.framework else {}),
        )
    return server


def notebook_pool(project: Project, by: User, name: str | None) -> Pool | None:
    """Return the pool in which a server is to run, None for the nodes of the installation.

    Raises InvalidInput, and Conflict where the person needs an account there first, or where
    nothing in a pool could be opened.
    """
    pool = usable_pool(project, name)
    require_relay(pool)
    if pool is not None:
        account_name(pool=pool, user=by)
    return pool


def _insert_server(
    project: Project,
    by: User,
    name: str,
    tier: Tier,
    pool: Pool | None,
    requested: ServerIn,
    version: EnvironmentVersion | None,
) -> Server:
    try:
        with transaction.atomic():
            return Server.objects.create(
                project=project,
                owner=by,
                name=name,
                tier=tier,
                pool=pool,
                framework=requested.framework or "",
                requirements=requested.requirements,
                environment_version=version,
                idle_after_s=requested.idle_minutes * _S_A_MINUTE,
                max_lifetime_s=lifetime_of(requested),
                daily_start=requested.daily_start or "",
                daily_stop=requested.daily_stop or "",
                days=[day.value for day in Weekday if day in requested.days],
                tags=dict(requested.tags),
            )
    except IntegrityError:
        _require_free(project, by, name)  # the same server was launched concurrently
        raise


def start_server(*, server: Server, by: User | None = None) -> Server:
    """Start a server again, with the same files and the notebooks that were open. Idempotent.

    Raises Conflict for one that is just being stopped.
    """
    require_notebooks()
    if server.status is NotebookState.STOPPING:
        raise Conflict(
            f"The notebook server {server.name} is being stopped.",
            code="server_stopping",
            next_step="Start it again in a few seconds, when it has stopped.",
        )
    if server.status in ALIVE:
        return server
    owner = by or server.owner
    pool = _pool_of(server, owner)
    refuse_impossible(
        project=server.project, tier=server.tier, tasks=1, backend=DEFAULT_BACKEND, pool=pool
    )
    environment = environment_of(
        project=server.project,
        by=owner,
        requirements=server.requirements,
        version=server.environment_version,
    )
    with transaction.atomic():
        current = Server.objects.select_for_update(of=("self",), no_key=True).get(pk=server.pk)
        if current.status not in AT_REST:
            return server
        _require_same_packages(server, current)
        # Perhaps changed concurrently. From here on they cannot change.
        server.refresh_from_db(fields=["tier", "pool", "max_lifetime_s"])
        _start(server, owner, environment)
        audit.record(
            "notebook.start",
            kind="notebook",
            target=server,
            label=server.name,
            project=server.project,
        )
    return server


def _pool_of(server: Server, by: User) -> Pool | None:
    """Return the pool of a server that starts again. Raises Conflict if it takes no new work."""
    if server.pool is None:
        return None
    try:
        return notebook_pool(server.project, by, server.pool.name)
    except InvalidInput as error:
        if error.code != "no_such_pool":
            raise
        raise Conflict(
            f"The pool {server.pool.name} of the notebook server {server.name} is closed.",
            code="no_such_pool",
            next_step="Choose another pool, or none, with Change.",
        ) from error


def _require_same_packages(server: Server, current: Server) -> None:
    """Raise Conflict if the environment that was looked up is no longer that of the server."""
    if (server.environment_version_id, server.requirements) != (
        current.environment_version_id,
        current.requirements,
    ):
        raise Conflict(
            f"The environment of the notebook server {server.name} has just been changed.",
            code="server_changed",
            next_step="Start it again.",
        )


def resume_server(*, project: Project, by: User) -> Server | None:
    """Return a server of the person's, started if none of theirs runs. None if they have none.

    One that is ready comes before one that starts, and the newest before older ones. Raises
    Conflict as `start_server` does.
    """
    servers = list(Server.objects.of_project(project).filter(owner=by).order_by("-pk"))
    if not servers:
        return None
    order = (NotebookState.READY, NotebookState.OPENING, NotebookState.STARTING)
    rank = {state: place for place, state in enumerate(order)}
    return start_server(server=min(servers, key=lambda it: rank.get(it.status, len(rank))), by=by)


def _start(server: Server, by: User, environment: str) -> None:
    """Submit the workload of a start. Call it inside a transaction."""
    workload = submit_workload(
        project=server.project,
        by=by,
        spec=WorkloadRequest(
            kind=KIND,
            name=server.name,
            tier=server.tier,
            spec=spec_from(
                backend=DEFAULT_BACKEND,
                argv=_ARGV,
                persistent_key=WORKSPACE,
                # The owner's folder, even if a schedule or another person starts the server.
                personal_key=personal_key_of(server.owner_id),
                framework=server.framework or None,
            ),
            environment=environment,
            max_lifetime_s=server.max_lifetime_s,
            tags=server.tags,
            pool=server.pool,
        ),
    )
    ServerRun.objects.create(server=server, workload=workload)
    moved = move_server(
        server,
        NotebookState.STARTING,
        workload=workload,
        reason="",
        next_step="",
        started_at=None,
        run_attempt=0,
        report_sequence=-1,
        address="",
        active_at=None,
        why_alive="",
        stops_at=None,
        stops_why="",
    )
    if not moved:
        raise Conflict(
            f"Somebody else has just started the notebook server {server.name}.",
            next_step="Reload the page and open it.",
        )


def stop_server(
    *,
    server: Server,
    by: User | None = None,
    reason: ReasonCode = ReasonCode.USER,
    message: str = "",
) -> Server:
    """Stop a server. Its files and the list of its open notebooks stay. Idempotent."""
    if server.workload is None or server.status in AT_REST:
        return server
    stop_workload(workload=server.workload, by=by, reason=reason, message=message)
    sync_server(server.workload.pk)
    server.refresh_from_db()
    return server


def delete_server(*, server: Server) -> None:
    """Delete a stopped server. Its files are in the project's workspace and stay there.

    Raises Conflict while it runs.
    """
    if server.status not in AT_REST:
        raise Conflict(
            f"The notebook server {server.name} is {server.state}.",
            code="server_runs",
            next_step="Stop it first.",
        )
    with transaction.atomic():
        # Lock order: the server row first, then HubVersion, as in server_transitions.
        current = Server.objects.select_for_update(of=("self",)).filter(pk=server.pk).first()
        if current is None:
            raise NotFound
        if current.status not in AT_REST:
            raise Conflict(
                f"Somebody else has just started the notebook server {server.name}, so it was "
                "not deleted.",
                code="server_runs",
                next_step="Stop it first.",
            )
        audit.record(
            "notebook.delete",
            kind="notebook",
            target=server,
            label=server.name,
            project=server.project,
        )
        current.delete()
        announce(server)


def lifetime_of(requested: ServerIn | ServerEdit) -> int | None:
    """Return the seconds a server may run at most."""
    return max(1, round(requested.max_hours * _S_AN_HOUR)) if requested.max_hours else None


def _require_free(project: Project, by: User, name: str) -> None:
    servers = Server.objects.filter(project=project, owner=by)
    if servers.filter(name=name).exists():
        raise Conflict(
            f"You already have a notebook server named {name} in this project.",
            code="name_taken",
            field="name",
            next_step="Start that one again, or choose another name.",
        )
    if servers.count() >= MOST_A_PERSON:
        raise Conflict(
            f"You have {MOST_A_PERSON} notebook servers in this project.",
            code="too_many_servers",
            next_step="Delete one you no longer use; its files stay.",
        )
