"""The people and objects the matrix asks about, and how an address names them.

A room that adds a route with a new path parameter adds a line to PARAMETERS, and to `_fill` one
object for each side.
"""

from dataclasses import dataclass, field

from allauth.usersessions.models import UserSession

from portal.accounts.models import Membership, Project, Team, User
from portal.accounts.services.invitations import NewInvitation, invite
from portal.accounts.services.projects import create_project
from portal.accounts.services.secrets import write_secret
from portal.accounts.services.teams import create_team
from portal.accounts.tokens import hash_of
from portal.compute.services.pools import create_pool
from portal.spend.services.budgets import set_budget
from portal.storage.services import store_file
from slipway.schemas.accounts import Role
from slipway.schemas.spend import BudgetIn
from tests.matrix.batched import make_batch_prediction
from tests.matrix.data import make_versions
from tests.matrix.desks import make_server
from tests.matrix.environments import make_environment
from tests.matrix.kept_notebooks import make_file_request, make_notebook, make_notebook_run
from tests.matrix.node_groups import make_node_group
from tests.matrix.pipelines import make_pipeline_run
from tests.matrix.pool_helpers import make_helper_request
from tests.matrix.registered import make_model
from tests.matrix.reported import make_report
from tests.matrix.scheduled import make_schedule, make_webhook
from tests.matrix.searched import make_study, make_sweep
from tests.matrix.service_accounts import make_service_account
from tests.matrix.serving import make_endpoint
from tests.matrix.work import make_tiers, make_tracked, make_work, new_join_secret, open_nodes
from tests.personas import Personas, make_personas, make_token, make_user
from tests.routes import Route

Objects = dict[str, str]
MISSING_ULID = "01j00000000000000000000000"


@dataclass(frozen=True)
class Parameter:
    """What a captured part of a path names: a kind of object, and one that does not exist."""

    kind: str
    missing: str


# By the end of the path up to the parameter; the longest that fits counts.
PARAMETERS = {
    "/projects/{project}": Parameter("project", "no-such-project"),
    "/teams/{team}": Parameter("team", "no-such-team"),
    "/members/{user_id}": Parameter("member", f"usr_{MISSING_ULID}"),
    "/users/{user_id}": Parameter("member", f"usr_{MISSING_ULID}"),
    "/p/{project}": Parameter("project", "no-such-project"),
    "/mlflow/{project}": Parameter("project", "no-such-project"),
    "/t/{team}": Parameter("team", "no-such-team"),
    "/members/{user}": Parameter("member", f"usr_{MISSING_ULID}"),
    "/people/{person}": Parameter("member", f"usr_{MISSING_ULID}"),
    "/p/{project}/invitations/{invitation}": Parameter("project invitation", f"inv_{MISSING_ULID}"),
    "/t/{team}/invitations/{invitation}": Parameter("team invitation", f"inv_{MISSING_ULID}"),
    "/invitations/mine/{invitation}": Parameter("own invitation", f"inv_{MISSING_ULID}"),
    "/tokens/{token}": Parameter("token", f"tok_{MISSING_ULID}"),
    "/sessions/{session}": Parameter("session", "999999"),
    "/projects/{project}/invitations/{invitation_id}": Parameter(
        "project invitation", f"inv_{MISSING_ULID}"
    ),
    "/teams/{team}/invitations/{invitation_id}": Parameter(
        "team invitation", f"inv_{MISSING_ULID}"
    ),
    "/files/{file_id}": Parameter("file", f"file_{MISSING_ULID}"),
    "/notes/{kind}": Parameter("kind of notes", "no-such-kind"),
    "/notes/{kind}/{target}": Parameter("endpoint", "no-such-endpoint"),
    "/service-accounts/{account}": Parameter("service account", "no-such-account"),
    "/service-accounts/{account}/tokens/{token_id}": Parameter(
        "service token", f"tok_{MISSING_ULID}"
    ),
    "/secrets/{name}": Parameter("secret", "NO_SUCH_SECRET"),
    "/tokens/{token_id}": Parameter("token", f"tok_{MISSING_ULID}"),
    "/invitations/{secret}": Parameter("link", "A" * 40),
    "/datasets/{dataset}": Parameter("dataset", "no-such-dataset"),
    "/datasets/{dataset}/versions/{version}": Parameter("data version", f"dsv_{MISSING_ULID}"),
    "/datasets/{dataset}/v/{version}": Parameter("data version", f"dsv_{MISSING_ULID}"),
    "/endpoints/{endpoint}": Parameter("endpoint", "no-such-endpoint"),
    "/servers/{server}": Parameter("notebook server", f"nbs_{MISSING_ULID}"),
    "/labs/{server}": Parameter("notebook server", f"nbs_{MISSING_ULID}"),
    "/keys/{key}": Parameter("endpoint key", f"epk_{MISSING_ULID}"),
    "/alerts/{alert}": Parameter("alert", f"alert_{MISSING_ULID}"),
    "/channels/{channel}": Parameter("channel", f"chan_{MISSING_ULID}"),
    "/replicas/{replica}": Parameter("replica", f"rpl_{MISSING_ULID}"),
    "/revisions/{number}": Parameter("revision number", "798765"),
    "/files/{number}": Parameter("file number", "61236"),
    "/notebook-files/{notebook}": Parameter("notebook", f"nb_{MISSING_ULID}"),
    "/notebooks/files/{notebook}": Parameter("notebook", f"nb_{MISSING_ULID}"),
    "/notebook-files/{notebook}/versions/{number}": Parameter("notebook version", "612360"),
    "/notebook-runs/{job}": Parameter("job", f"wl_{MISSING_ULID}"),
    "/notebooks/runs/{job}": Parameter("job", f"wl_{MISSING_ULID}"),
    "/jobs/{job}": Parameter("job", f"job_{MISSING_ULID}"),
    "/shells/{shell}": Parameter("shell", f"shl_{MISSING_ULID}"),
    "/optuna-storages/{storage}": Parameter("optuna storage", "no-such-storage"),
    "/optuna-studies/{study}": Parameter("optuna study", f"ost_{MISSING_ULID}"),
    "/batch-predictions/{batch_prediction}": Parameter("batch prediction", f"wl_{MISSING_ULID}"),
    "/sweeps/{sweep}": Parameter("sweep", f"swp_{MISSING_ULID}"),
    "/pipelines/{pipeline_run}": Parameter("pipeline run", f"ppr_{MISSING_ULID}"),
    "/pipelines/{pipeline_run}/steps/{step}": Parameter("pipeline step", "no-such-step"),
    "/runs/{pipeline_run}": Parameter("pipeline run", f"ppr_{MISSING_ULID}"),
    "/runs/{pipeline_run}/steps/{step}": Parameter("pipeline step", "no-such-step"),
    "/schedules/{schedule}": Parameter("schedule", "no-such-schedule"),
    "/hooks/{hook}": Parameter("webhook", "slh_" + "A" * 40),
    "/workloads/{workload}": Parameter("workload", f"wl_{MISSING_ULID}"),
    "/snapshots/{digest}": Parameter("snapshot", "0" * 64),
    "/environments/{digest}": Parameter("environment", "0" * 64),
    # One that the environment does not name.
    "/archives/{sha256}": Parameter("snapshot", "0" * 64),
    "/environments/{environment}": Parameter("named environment", "no-such-environment"),
    "/named-environments/{environment}": Parameter("named environment", "no-such-environment"),
    "/named-environments/{environment}/versions/{number}": Parameter(
        "environment version", "612391"
    ),
    "/nodes/{node}": Parameter("node", "no-such-node"),
    "/budgets/{budget}": Parameter("budget", f"bdg_{MISSING_ULID}"),
    "/rates/{resource}": Parameter("resource", "no-such-resource"),
    "/experiments/{experiment}": Parameter("experiment", "798765"),
    "/runs/{run}": Parameter("run", "0" * 32),
    "/views/{view}": Parameter("view", f"view_{MISSING_ULID}"),
    "/reports/{report}": Parameter("report", f"rpt_{MISSING_ULID}"),
    "/reports/{report}/versions/{number}": Parameter("report version", "612390"),
    "/shared/reports/{secret}": Parameter("share link", "A" * 40),
    "/models/{model}": Parameter("model", "no-such-model"),
    "/versions/{version}": Parameter("version", "798765"),
    "/aliases/{alias}": Parameter("alias", "no-such-alias"),
    "/requests/{request_id}": Parameter("promotion request", f"preq_{MISSING_ULID}"),
    "/requests/{helper_request}": Parameter("helper request", f"hreq_{MISSING_ULID}"),
    "/tiers/{tier}": Parameter("tier", "no-such-tier"),
    "/pools/{pool}": Parameter("pool", "no-such-pool"),
    "/node-groups/{group}": Parameter("node group", "no-such-group"),
    "/docs/{page}": Parameter("docs page", "no-such-page"),
    "/logs/{task_id}": Parameter("task", f"task_{MISSING_ULID}"),
    "/{task_id}/{epoch}": Parameter("epoch", "798765"),
    "/{epoch}/{rank}": Parameter("rank", "61235"),
    "/checkpoints/{task_id}": Parameter("task", f"task_{MISSING_ULID}"),
    "/{epoch}/{step}": Parameter("step", "612373"),
    "/file-requests/{request_id}": Parameter("file request", f"wfr_{MISSING_ULID}"),
    "/password/reset/key/{uidb36}": Parameter("reset user", "zz"),
    "/password/reset/key/{uidb36}-{key}": Parameter("reset key", "0-0"),
}
# Names and numbers that are chosen outside: the same one may stand in both tenants.
NATURAL_KEYS = frozenset({"secret", "step", "optuna storage"})


@dataclass(frozen=True)
class World:
    """`own` names objects of Alice's tenant, `foreign` those of Charlie's.

    Sue owns what Alice owns and is suspended. `links` holds for each person's id the secret of an
    open invitation made for them. `secrets` speak for machines and for what runs on them: the node
    that runs Alice's job (`node`), the one that runs Charlie's (`other node`), Alice's job itself
    (`workload`), and a machine that wants to join (`join`).
    """

    people: Personas
    sue: User
    crew: Team
    elsewhere: Project
    own: Objects = field(default_factory=dict)
    foreign: Objects = field(default_factory=dict)
    links: Objects = field(default_factory=dict)
    secrets: Objects = field(default_factory=dict)


def make_world() -> World:
    """Make everybody, both tenants, and one of everything in each."""
    people = make_personas()
    sue, dan = make_user("sue"), make_user("dan")
    crew = create_team(by=people.alice, name="Crew")
    rivals = create_team(by=people.charlie, name="Rivals")
    for user, role in (
        (people.mia, Role.MAINTAINER),
        (people.bob, Role.CONTRIBUTOR),
        (people.vera, Role.VIEWER),
        (sue, Role.OWNER),
    ):
        Membership.objects.create(user=user, team=crew, role=role)
    Membership.objects.create(user=sue, project=people.vision, role=Role.OWNER)
    Membership.objects.create(user=dan, team=rivals, role=Role.CONTRIBUTOR)
    Membership.objects.create(user=dan, project=people.other, role=Role.CONTRIBUTOR)
    elsewhere = create_project(by=people.alice, name="Elsewhere")
    world = World(people, sue, crew, elsewhere)
    _fill(world.own, owner=people.alice, member=people.bob, project=people.vision, team=crew)
    _fill(world.foreign, owner=people.charlie, member=dan, project=people.other, team=rivals)
    _invite_everybody(world)
    _let_work(world)
    User.objects.filter(pk=sue.pk).update(is_active=False)
    return world


def _fill(into: Objects, *, owner: User, member: User, project: Project, team: Team) -> None:
    """Make one object of each kind on one side."""
    guest = f"guest-of-{owner.name}@example.org".lower()
    write_secret(project=project, by=owner, name=f"{owner.name}_KEY".upper(), value="hush")
    version = make_versions(project=project, by=owner, name=f"data-of-{owner.name}".lower())
    file = store_file(project=project, by=owner, name="a.csv", chunks=iter([owner.name.encode()]))
    into |= make_endpoint(owner=owner, project=project)
    into |= make_server(owner=owner, project=project)
    into |= {
        "file": file.pk,
        "dataset": version.dataset.name,
        "data version": version.pk,
        "project": project.slug,
        "budget": set_budget(
            by=owner, spec=BudgetIn(project=project.slug, limit_nano_usd=10**12)
        ).pk,
        "team": team.slug,
        "member": member.pk,
        "project invitation": _invite(project, owner, guest).invitation.pk,
        "team invitation": _invite(team, owner, guest).invitation.pk,
        "secret": f"{owner.name}_KEY".upper(),
        "session": _signed_in(owner),
        **make_service_account(project=project, by=owner),
        "token": owner.tokens.get(token_hash=hash_of(make_token(owner))).pk,
        **make_notebook(project=project, by=owner),
        **make_tracked(project=project, by=owner),
        **make_model(project=project, by=owner),
        **make_report(project=project, by=owner),
        **make_environment(project=project, by=owner),
        **make_study(project=project, by=owner),
        "reset user": "1",
        "reset key": "abc-0",
    }


def _let_work(world: World) -> None:
    """Let a job of each side run on a machine of its own."""
    people = world.people
    make_tiers()
    own = make_work(owner=people.alice, project=people.vision, node="atlas")
    foreign = make_work(owner=people.charlie, project=people.other, node="boreas")
    open_nodes()
    for objects in (own.objects, foreign.objects):
        make_notebook_run(objects["workload"])
        objects["sweep"] = make_sweep(objects["workload"])
        objects["batch prediction"] = make_batch_prediction(objects["workload"])
        objects["schedule"] = make_schedule(objects["workload"])
        objects["webhook"] = make_webhook(objects["workload"])
        objects["pipeline run"] = make_pipeline_run(objects["workload"])
        objects["file request"] = make_file_request(objects["workload"])
    world.own.update(own.objects, tier="cpu-small", resource="cpu")
    for side, project, person, pool in (
        (world.own, people.vision, people.alice, "twin"),
        (world.foreign, people.other, people.charlie, "their-twin"),
    ):
        row = create_pool(name=pool, engine="slurm", settings={"helper": True}, projects=[project])
        side["pool"] = pool
        side["helper request"] = make_helper_request(row, person)
    for side, project, group in (
        (world.own, people.vision, "burst"),
        (world.foreign, people.other, "their-burst"),
    ):
        side["node group"] = make_node_group(group, project)
    world.own["pipeline step"], world.foreign["pipeline step"] = "ok", "nor-such-step"
    world.own["docs page"], world.foreign["docs page"] = "training", "nor-such-a-page"
    world.own["kind of notes"], world.foreign["kind of notes"] = "endpoint", "nor-such-kind"
    # Tiers belong to the installation, so there is no foreign one; a foreign attempt or rank is
    # one that Alice's job does not have.
    world.foreign.update(
        foreign.objects,
        tier="nor-such-a-tier",
        resource="nor-such",
        epoch="812345",
        rank="61234",
        step="612372",
    )
    world.foreign["notebook version"] = "612350"
    # A number that no report has, and a link that is off.
    world.foreign["environment version"] = "612352"
    world.foreign["report version"], world.foreign["share link"] = "612351", "B" * 40
    world.secrets.update(
        {
            "node": own.node_secret,
            "other node": foreign.node_secret,
            "workload": own.workload_token,
            "join": new_join_secret(),
        }
    )


def _signed_in(user: User) -> str:
    # A number long enough to be told apart from every other number on a page.
    session = UserSession.objects.create(
        pk=700_001 + UserSession.objects.count(),
        user=user,
        ip="127.0.0.1",
        session_key=f"of-{user.pk}",
        user_agent="a browser",
    )
    return str(session.pk)


def _invite(group: Project | Team, by: User, email: str) -> NewInvitation:
    return invite(group=group, by=by, by_role=Role.OWNER, email=email, role=Role.VIEWER)


def _invite_everybody(world: World) -> None:
    people = world.people
    ids: Objects = {}
    for user in User.objects.people():
        host, group = (
            (people.charlie, people.other)
            if user == people.alice
            else (people.alice, world.elsewhere)
        )
        made = _invite(group, host, user.email)
        world.links[user.pk] = made.link.rpartition("/")[2]
        ids[user.pk] = made.invitation.pk
    world.own["link"] = world.links[people.alice.pk]
    world.foreign["link"] = world.links[people.charlie.pk]
    world.own["own invitation"] = ids[people.alice.pk]
    world.foreign["own invitation"] = ids[people.charlie.pk]


def parameter_at(route: Route, name: str) -> Parameter:
    """Return what a parameter of a route names; raises LookupError for one nobody explained."""
    upto = route.template[: route.template.index(f"{{{name}}}") + len(name) + 2]
    fitting = [end for end in PARAMETERS if upto.endswith(end)]
    if not fitting:
        raise LookupError(f"add {upto} to PARAMETERS in tests/matrix/world.py")
    return PARAMETERS[max(fitting, key=len)]


def values_for(route: Route, objects: Objects) -> dict[str, str]:
    """Return the value of each parameter of a route on one side."""
    return {name: objects[parameter_at(route, name).kind] for name in route.parameters}


def missing_values_for(route: Route) -> dict[str, str]:
    """Return for each parameter of a route a value that names nothing."""
    return {name: parameter_at(route, name).missing for name in route.parameters}
