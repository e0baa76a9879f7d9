"""`slipway endpoint`: create, promote, roll back, pause, keys, predict."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from slipway.cli.endpoint_keys import EndpointArgument
from slipway.cli.endpoint_keys import app as keys
from slipway.cli.endpoint_monitoring import app as monitoring
from slipway.cli.endpoint_texts import progress_text, replicas_text, revision_text
from slipway.cli.environment_option import EnvironmentOption
from slipway.cli.exits import UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.session import RETRIES, Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.train import PoolOption
from slipway.cli.transfer import receive_file
from slipway.cli.watch import PipeScreen, shows_colours
from slipway.console import LogLines
from slipway.endpoint import Endpoint
from slipway.resources.endpoints import plan_of
from slipway.schemas.endpoints import EndpointOut, PlanKind
from slipway.schemas.json_text import read_json
from slipway.schemas.money import dollars
from slipway.schemas.training import LogPiece

app = typer.Typer(
    no_args_is_help=True, help="Endpoints: create, promote, roll back, pause, keys, predict."
)
app.add_typer(keys, name="keys")
app.add_typer(monitoring, name="monitoring")

ReasonOption = Annotated[
    str | None, typer.Option("--reason", help="Reason, recorded in the events.")
]
FallbackOption = Annotated[
    str | None,
    typer.Option(
        "--fallback",
        metavar="WHAT",
        help="While no replica is ready: standby (a warm earlier revision) or off (503).",
    ),
]
_FALLBACKS = {
    "standby": "a warm earlier revision responds, marked with x-slipway-fallback",
    "off": "503 with Retry-After",
}
_PAST = ("retired", "failed")
MAX_INPUT_BYTES = 64 * 1024**2


def _show(session: Session, endpoint: EndpointOut) -> None:
    if session.output.as_json:
        session.output.document(endpoint)
        return
    if session.output.quiet:
        session.output.line(endpoint.name)
        return
    rollout = endpoint.rollout
    details: dict[str, object] = {
        "Name": endpoint.name,
        "State": endpoint.state,
        "Why": endpoint.reason,
        "Address": endpoint.url,
        "Revisions": [
            revision_text(revision)
            for revision in endpoint.revisions
            if revision.weight or revision.state not in _PAST
        ],
        "Rollout": progress_text(rollout) if rollout else None,
        "Next step": rollout.next_step_at if rollout else None,
        "Replicas": replicas_text(endpoint),
        "Missing replicas": endpoint.missing_replicas_reason or None,
        "Without a replica": _FALLBACKS.get(endpoint.fallback, endpoint.fallback),
        "Captured": (
            f"{endpoint.captured:,} of {endpoint.captured + endpoint.uncaptured:,} answered"
        ),
        "Incidents of the last hour": [revision.message for revision in endpoint.incidents] or None,
        "Tier": endpoint.tier,
        "Pool": endpoint.pool,
        "Current cost rate": f"{dollars(endpoint.nano_usd_per_hour)} an hour",
        "Created by": endpoint.made_by,
        "Created": endpoint.created_at,
        "Page": session.client.endpoints.page(endpoint.name, project=endpoint.project),
    }
    session.output.facts(details)
    session.output.note_omitted(
        endpoint.incidents_left_out, "incident of the last hour", "incidents of the last hour"
    )
    others = [
        revision
        for revision in endpoint.revisions
        if not revision.weight and revision.state in _PAST
    ]
    session.output.note_omitted(len(others) + endpoint.revisions_left_out, "earlier revision")


@command(app, "create")
def create(
    session: Session,
    endpoint: EndpointArgument,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A registered model.")],
    version: Annotated[
        str | None,
        typer.Option("--version", help="Number or alias of the version. Default: the latest."),
    ] = None,
    environment: EnvironmentOption = None,
    tier: Annotated[
        str | None, typer.Option("--tier", help="Hardware of each replica. Default: the cheapest.")
    ] = None,
    pool: PoolOption = None,
    min_replicas: Annotated[
        int | None, typer.Option("--min", min=1, help="Minimum number of replicas (1).")
    ] = None,
    max_replicas: Annotated[
        int | None, typer.Option("--max", min=1, help="Maximum number of replicas (same as --min).")
    ] = None,
    fallback: FallbackOption = None,
    project: ProjectOption = None,
) -> None:
    """Create an endpoint that serves a version of a model."""
    made = session.client.endpoints.create(
        endpoint,
        model,
        project=session.project(project),
        version=version,
        environment=environment,
        tier=tier,
        pool=pool,
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        fallback=fallback,
    )
    _show(session, made)


@command(app, "list")
def list_endpoints(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None,
        typer.Option("--search", "-s", help="Only names and models that contain this text."),
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="Only in this state.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the endpoints of a project, newest first."""
    pages = session.client.endpoints.list(
        project=session.project(project), search=search, state=state
    )
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", style="bold"),
            ListColumn("State"),
            ListColumn("Serves", fit=CellOverflow.WRAPPED),
            ListColumn("Replicas"),
            ListColumn("An hour", dispensable=1),
            ListColumn("Created", dispensable=2),
        ],
        row=lambda endpoint: (
            endpoint.name,
            endpoint.state,
            ", ".join(
                f"{r.model} {r.version}: {r.weight} %" for r in endpoint.revisions if r.weight
            ),
            f"{endpoint.replicas_ready}/{endpoint.desired_replicas}",
            dollars(endpoint.nano_usd_per_hour),
            endpoint.created_at,
        ),
        key=lambda item: item.name,
        nothing="There is no endpoint yet. Create one: slipway endpoint create NAME MODEL",
    )


@command(app, "show")
def show(session: Session, endpoint: EndpointArgument, project: ProjectOption = None) -> None:
    """Show an endpoint: state and reason, revisions, current rollout, cost."""
    _show(session, session.client.endpoints.get(endpoint, project=session.project(project)))


@command(app, "promote")
def promote(
    session: Session,
    endpoint: EndpointArgument,
    version: Annotated[
        str | None, typer.Argument(metavar="VERSION", help="A number or an alias of the model.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="A different model.")] = None,
    revision: Annotated[
        int | None, typer.Option("--revision", min=1, help="An earlier revision instead.")
    ] = None,
    environment: EnvironmentOption = None,
    plan: Annotated[
        PlanKind | None, typer.Option("--plan", help="How traffic moves (all_at_once).")
    ] = None,
    percent: Annotated[
        list[int] | None,
        typer.Option(
            "--percent", min=1, max=100, help="Traffic of a canary step. Repeat for more steps."
        ),
    ] = None,
    bake_s: Annotated[
        float | None, typer.Option("--bake", min=0, help="Duration of each step in seconds (60).")
    ] = None,
    shadow_percent: Annotated[
        float | None,
        typer.Option("--shadow", min=0.01, max=100, help="Share of requests that a shadow copies."),
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Roll out another version. Slipway rolls back automatically if it performs badly."""
    if version is not None and revision is not None:
        raise UsageMistake(
            "Both a version and a revision are given.", next_step="Give one of them."
        )
    place = session.project(project)
    made = session.client.endpoints.promote(
        endpoint,
        project=place,
        model=model,
        version=version,
        revision=revision,
        environment=environment,
        plan=plan_of(plan, percent or None, bake_s, shadow_percent),
    )
    if session.output.as_json:
        session.output.document(made)
    elif session.output.quiet:
        session.output.line(made.id)
    else:
        session.output.facts(
            {
                "Rollout": made.id,
                "Progress": progress_text(made),
                "In place of revision": made.previous,
                "Page": session.client.endpoints.page(endpoint, project=place),
            }
        )


@command(app, "rollback")
def rollback(
    session: Session,
    endpoint: EndpointArgument,
    reason: ReasonOption = None,
    project: ProjectOption = None,
) -> None:
    """Roll back to the previous revision, immediately if it is still warm."""
    place = session.project(project)
    _show(session, session.client.endpoints.rollback(endpoint, project=place, reason=reason))


@command(app, "pause")
def pause(
    session: Session,
    endpoint: EndpointArgument,
    reason: ReasonOption = None,
    project: ProjectOption = None,
) -> None:
    """Stop the replicas. Requests get 503 with the reason until the endpoint is resumed."""
    place = session.project(project)
    _show(session, session.client.endpoints.pause(endpoint, project=place, reason=reason))


@command(app, "resume")
def resume(session: Session, endpoint: EndpointArgument, project: ProjectOption = None) -> None:
    """Start the replicas again."""
    _show(session, session.client.endpoints.resume(endpoint, project=session.project(project)))


@command(app, "scale")
def scale(
    session: Session,
    endpoint: EndpointArgument,
    min_replicas: Annotated[
        int | None, typer.Option("--min", min=1, help="Minimum number of replicas.")
    ] = None,
    max_replicas: Annotated[
        int | None, typer.Option("--max", min=1, help="Maximum number of replicas.")
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Change the minimum and maximum number of replicas."""
    if min_replicas is None and max_replicas is None:
        raise UsageMistake("Nothing would change.", next_step="Give --min or --max.")
    changed = session.client.endpoints.scale(
        endpoint,
        project=session.project(project),
        min_replicas=min_replicas,
        max_replicas=max_replicas,
    )
    _show(session, changed)


@command(app, "change")
def change(
    session: Session,
    endpoint: EndpointArgument,
    fallback: FallbackOption = None,
    capture: Annotated[
        str | None, typer.Option("--capture", metavar="MODE", help="on, strict or off.")
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Change the fallback without replicas and the capture of predictions."""
    if fallback is None and capture is None:
        raise UsageMistake("Nothing would change.", next_step="Give --fallback or --capture.")
    changed = session.client.endpoints.change(
        endpoint, project=session.project(project), fallback=fallback, capture=capture
    )
    _show(session, changed)


@command(app, "delete")
def delete(
    session: Session, endpoint: EndpointArgument, yes: Yes = False, project: ProjectOption = None
) -> None:
    """Delete an endpoint. Its replicas finish their current requests."""
    place = session.project(project)
    confirm(
        f"Delete the endpoint {endpoint} of {place}? Its clients get 404 from then on.",
        yes=yes,
        output=session.output,
    )
    _show(session, session.client.endpoints.delete(endpoint, project=place))


@command(app, "events")
def events(
    session: Session,
    endpoint: EndpointArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the events of an endpoint with their reasons, newest first."""
    pages = session.client.endpoints.events(endpoint, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[ListColumn("When"), ListColumn("What", fit=CellOverflow.WRAPPED)],
        row=lambda event: (event.at, event.message),
        key=lambda event: event.message,
        nothing="There are no events yet.",
    )


@command(app, "replicas")
def replicas(session: Session, endpoint: EndpointArgument, project: ProjectOption = None) -> None:
    """List active and recently ended replicas, with their reasons."""
    items = session.client.endpoints.replicas(endpoint, project=session.project(project))
    output = session.output
    if output.as_json:
        output.document({"items": [replica.model_dump(mode="json") for replica in items]})
    elif output.quiet:
        for replica in items:
            output.line(replica.workload or replica.id)
    else:
        output.table(
            [
                ListColumn("Workload", style="bold"),
                ListColumn("Revision"),
                ListColumn("State"),
                ListColumn("Why", fit=CellOverflow.WRAPPED),
                ListColumn("Node", dispensable=1),
                ListColumn("Created", dispensable=2),
            ],
            [
                (
                    replica.workload,
                    replica.revision,
                    replica.state,
                    replica.reason,
                    replica.node,
                    replica.created_at,
                )
                for replica in items
            ],
        )


@command(app, "logs")
def logs(
    session: Session,
    endpoint: EndpointArgument,
    replica: Annotated[
        str | None, typer.Option("--replica", help="Workload of the replica. Default: the newest.")
    ] = None,
    download: Annotated[
        Path | None, typer.Option("--download", metavar="FILE", help="Write the bytes to a file.")
    ] = None,
    yes: Yes = False,
    project: ProjectOption = None,
) -> None:
    """Show the log of a replica."""
    if session.output.as_json:
        raise UsageMistake(
            "A log is not JSON.", next_step="Leave out --json, or use --download FILE."
        )
    place = session.project(project)
    items = session.client.endpoints.replicas(endpoint, project=place)
    known = [item.workload for item in items if item.workload is not None]
    workload = replica or next(iter(known), None)
    if workload is None or workload not in known:
        raise UsageMistake(
            f"{endpoint} has no such replica.",
            next_step=f"See them with `slipway endpoint replicas {endpoint}`.",
        )
    content = session.client.endpoints.logs(workload, project=place)
    if download is not None:
        if download.exists():
            confirm(f"Replace the file {download}?", yes=yes, output=session.output)
        receive_file(session, content, download, label="Receiving", option="--download")
        session.output.line(str(download))
        return
    screen = PipeScreen(session)
    lines = LogLines(ranks=1, colours=shows_colours())
    offset = 0
    for data in content:
        screen.lines(lines.complete_lines(LogPiece.of(attempt=1, rank=0, offset=offset, data=data)))
        offset += len(data)
    screen.lines(lines.flush())


@command(app, "predict")
def predict(
    session: Session,
    endpoint: EndpointArgument,
    source: Annotated[
        str,
        typer.Argument(metavar="JSON", help="The input as JSON, @FILE, or - for standard input."),
    ],
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            envvar="SLIPWAY_ENDPOINT_KEY",
            help="A key of the endpoint. Without one, the portal sends the request for you.",
        ),
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Request a prediction for rows, records, columns, or a body of /invocations."""
    data = _read_input(source)
    with Endpoint(
        endpoint,
        key=key,
        project=session.project(project),
        client=session.client,
        retries=RETRIES,
    ) as requested:
        answer = requested.predict(data)
    session.output.line(json.dumps(answer, ensure_ascii=True))


def _read_input(source: str) -> Any:
    try:
        if source == "-":
            text = sys.stdin.read(MAX_INPUT_BYTES + 1)
        elif source.startswith("@"):
            with Path(source[1:]).open(encoding="utf-8") as file:
                text = file.read(MAX_INPUT_BYTES + 1)
        else:
            text = source
        if len(text) > MAX_INPUT_BYTES:
            raise UsageMistake("The input is larger than 64 MiB.", next_step="Send it in parts.")
        return read_json(text)
    except OSError as error:
        raise UsageMistake(
            f"{source[1:]} cannot be read: {error.strerror}.", next_step="Give a readable file."
        ) from None
    except ValueError as error:
        raise UsageMistake(
            f"The input is not JSON: {error}.",
            next_step="For example '[[0, 0, 5, 13]]' or '[{\"age\": 33}]'.",
        ) from None
