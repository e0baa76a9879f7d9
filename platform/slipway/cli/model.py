"""`slipway model`: register, plan, request, approve, promote."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from slipway.cli.exits import UsageMistake
from slipway.cli.model_predictions import app as predictions
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.transfer import progress_bar
from slipway.model_files import is_local_path, model_files, read_signature
from slipway.registration import source_of, target_of
from slipway.schemas.base import PageOf
from slipway.schemas.registry import MoveOut, PlanOut, RequestOut, Verdict, VersionDetail
from slipway.schemas.serving import BatchingMode
from slipway.snapshots.limits import size_text

app = typer.Typer(
    no_args_is_help=True, help="Models: register, compare, approve, promote, predict."
)
app.add_typer(predictions)


class BareFormat(StrEnum):
    """Formats of single-file models."""

    ONNX = "onnx"
    TORCH_EXPORT = "torch_export"
    TORCHSCRIPT = "torchscript"


ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")]
VersionArgument = Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Its number.")]
TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="A stage of the project, or an alias.")
]
RequestArgument = Annotated[str, typer.Argument(metavar="REQUEST", help="Id of the request.")]
NoteOption = Annotated[str | None, typer.Option("--note", help="Comment.")]


def _show_version(session: Session, version: VersionDetail) -> None:
    if session.output.as_json:
        session.output.document(version)
        return
    if session.output.quiet:
        session.output.line(str(version.version))
        return
    signature = version.signature
    details: dict[str, object] = {
        "Model": version.model,
        "Version": version.version,
        "Stage": version.stage,
        "Aliases": version.aliases,
        "Author": version.author.email if version.author else None,
        "Source": version.source,
        "Run": version.run_id,
        "Format": version.format.value if version.format else None,
        "Flavours": version.flavors,
        "Inputs": [column.name for column in signature.inputs] if signature else None,
        "Batching": f"{version.batching.mode.value}: {version.batching.reason}",
        "Merging": version.batching.gain,
        "Recorded predictions": version.golden.rows if version.golden else None,
        "Figures": [
            f"{evaluation.metric} on {evaluation.dataset}: {evaluation.note or evaluation.value}"
            f"{'' if evaluation.is_verified else ' (not by a job)'}"
            for evaluation in version.evaluations
        ],
        "Files": f"{len(version.files)}, {size_text(version.size_bytes)}",
        "Digest": version.digest,
        "Fault": version.fault,
        "Created": version.created_at,
    }
    session.output.facts(details)
    session.output.note_omitted(version.evaluations_left_out, "figure")


def _show_move(session: Session, move: MoveOut) -> None:
    if session.output.as_json:
        session.output.document(move)
    elif session.output.quiet:
        session.output.line(str(move.sequence))
    else:
        session.output.facts(
            {
                "Version": move.version,
                "Current version": f"{move.kind.value} {move.target}",
                "Replaces": move.replaced,
                "Gates": [gate.sentence for gate in move.gates],
                "Overridden": move.override_reason,
                "Sequence": move.sequence,
            }
        )


def _show_request(session: Session, request: RequestOut) -> None:
    if session.output.as_json:
        session.output.document(request)
    elif session.output.quiet:
        session.output.line(request.id)
    else:
        session.output.facts(
            {
                "Request": request.id,
                "Model": request.model,
                "Version": request.version,
                "To": f"{request.kind.value} {request.target}",
                "State": request.state.value,
                "Requested by": request.requested_by.email,
                "Decided by": request.decided_by.email if request.decided_by else None,
                "Said": request.decision_note,
            }
        )


@command(app, "list")
def list_models(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only names that contain this text.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the registered models of a project, by name."""
    pages = session.client.models.list(project=session.project(project), search=search)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", style="bold"),
            ListColumn("Versions"),
            ListColumn("Stages", fit=CellOverflow.WRAPPED),
            ListColumn("Aliases", fit=CellOverflow.WRAPPED),
        ],
        row=lambda model: (
            model.name,
            model.versions,
            ", ".join(f"{stage}: {number}" for stage, number in model.stages.items()),
            ", ".join(f"{alias}: {number}" for alias, number in model.aliases.items()),
        ),
        key=lambda model: model.name,
        nothing="There is no model yet. Register one: slipway model register RUN_ID NAME",
    )


@command(app, "versions")
def list_versions(
    session: Session,
    model: ModelArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the versions of a model, newest first."""
    pages = session.client.models.versions(model, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Version", style="bold"),
            ListColumn("Stage"),
            ListColumn("Aliases", fit=CellOverflow.WRAPPED),
            ListColumn("Author", dispensable=2),
            ListColumn("Created", dispensable=1),
        ],
        row=lambda version: (
            version.version,
            version.stage,
            ", ".join(version.aliases),
            version.author.email if version.author else "",
            version.created_at,
        ),
        key=lambda item: str(item.version),
        nothing="The model has no version yet.",
    )


@command(app, "show")
def show_version(
    session: Session, model: ModelArgument, version: VersionArgument, project: ProjectOption = None
) -> None:
    """Show a version: signature, files, figures."""
    place = session.project(project)
    _show_version(session, session.client.models.version(model, version, project=place))


@command(app, "register")
def register(
    session: Session,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Id of a run, a URI such as runs:/RUN/model, or a file or folder here.",
        ),
    ],
    model: ModelArgument,
    path: Annotated[str, typer.Option("--path", help="Path of the model in the run.")] = "model",
    format_: Annotated[
        BareFormat | None,
        typer.Option("--format", help="Format of a single file."),
    ] = None,
    signature: Annotated[
        Path | None,
        typer.Option(
            "--signature",
            metavar="JSON",
            help="File with the signature, if the model has none.",
        ),
    ] = None,
    batching: Annotated[
        BatchingMode | None,
        typer.Option(
            "--batching",
            help="Merge waiting requests (rows) or not. Default: decided by the golden rows.",
        ),
    ] = None,
    description: Annotated[
        str | None, typer.Option("--description", help="Description of the changes.")
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Register the model of a run, or a file, as the next version.

    A single file may be ONNX, torch.export or TorchScript.
    """
    place = session.project(project)
    given = read_signature(signature) if signature is not None else None
    uri = _sent(session, model, source, place) if is_local_path(source) else source_of(source, path)
    made = session.client.models.register(
        model,
        uri,
        project=place,
        format=format_,
        signature=given,
        batching=batching,
        description=description,
    )
    _show_version(session, made)


@command(app, "batching")
def set_batching(
    session: Session,
    model: ModelArgument,
    version: VersionArgument,
    mode: Annotated[
        str,
        typer.Argument(metavar="rows|requests|off|auto", help="auto: decided by the golden rows."),
    ],
    project: ProjectOption = None,
) -> None:
    """Set whether waiting requests to a version may be merged into a batch."""
    if mode != "auto" and mode not in list(BatchingMode):
        raise UsageMistake(
            f"{mode} is not a batching mode.", next_step="Use rows, requests, off or auto."
        )
    stated = None if mode == "auto" else BatchingMode(mode)
    place = session.project(project)
    changed = session.client.models.set_batching(model, version, project=place, mode=stated)
    _show_version(session, changed)


def _sent(session: Session, model: str, source: str, project: str) -> str:
    """Upload local files with a progress bar. Returns their location."""
    total_bytes = sum(file.size_bytes for file in model_files(source))
    with progress_bar(session, "Uploading model", total_bytes=total_bytes) as bar:
        return session.client.models.upload(model, source, project=project, progress=bar.show)


@command(app, "plan")
def show_plan(
    session: Session,
    model: ModelArgument,
    version: VersionArgument,
    target: TargetArgument,
    project: ProjectOption = None,
) -> None:
    """Show what a promotion would change, and the state of its gates."""
    place = session.project(project)
    where = target_of(session.client, place, target)
    plan = session.client.models.plan(model, version, project=place, **where)
    if session.output.as_json:
        session.output.document(plan)
    elif session.output.quiet:
        session.output.line("yes" if plan.may_promote else "no")
    else:
        session.output.facts(_plan_facts(plan))


def _plan_facts(plan: PlanOut) -> dict[str, object]:
    closed = [gate for gate in plan.gates if not gate.passed]
    return {
        "Would": plan.sentence,
        "Open": [gate.sentence for gate in plan.gates if gate.passed],
        "Closed": [gate.sentence for gate in closed],
        "Next step": [gate.next_step for gate in closed if gate.next_step],
    }


@command(app, "promote")
def promote(
    session: Session,
    model: ModelArgument,
    version: VersionArgument,
    target: TargetArgument,
    override: Annotated[
        str | None,
        typer.Option(
            "--override", metavar="REASON", help="Override failed gates. The override is audited."
        ),
    ] = None,
    archive: Annotated[
        bool | None,
        typer.Option(
            "--archive-replaced/--keep-replaced",
            help="Archive the version that is in the stage now, or keep it there.",
            show_default="archive in stages between the first and the last",
        ),
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Move a version to a stage, or an alias to it."""
    place = session.project(project)
    where = target_of(session.client, place, target)
    move = session.client.models.promote(
        model,
        version,
        project=place,
        stage=where.get("stage"),
        alias=where.get("alias"),
        override_reason=override,
        archive_replaced=archive,
    )
    _show_move(session, move)


@command(app, "request")
def request(
    session: Session,
    model: ModelArgument,
    version: VersionArgument,
    target: TargetArgument,
    note: NoteOption = None,
    project: ProjectOption = None,
) -> None:
    """Request the approval of a promotion."""
    place = session.project(project)
    where = target_of(session.client, place, target)
    made = session.client.models.request_approval(model, version, project=place, note=note, **where)
    _show_request(session, made)


@command(app, "decide")
def decide(
    session: Session,
    model: ModelArgument,
    request: RequestArgument,
    verdict: Annotated[str, typer.Argument(metavar="approve|reject|withdraw")],
    note: NoteOption = None,
    project: ProjectOption = None,
) -> None:
    """Approve or reject a promotion, or withdraw your own request."""
    if verdict not in list(Verdict):
        raise UsageMistake(
            f"{verdict} is not a decision.", next_step="Use approve, reject or withdraw."
        )
    place = session.project(project)
    decided = session.client.models.decide(
        model, request, project=place, verdict=verdict, note=note
    )
    _show_request(session, decided)


@command(app, "history")
def history(
    session: Session,
    model: ModelArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the promotions of a model, newest first."""
    pages = session.client.models.history(model, project=session.project(project))
    value: PageOf[MoveOut] = collect(pages, limit=limit, cursor=cursor)
    show_list(
        session,
        value,
        columns=[
            ListColumn("Place", style="bold"),
            ListColumn("Version"),
            ListColumn("To"),
            ListColumn("Replaces"),
            ListColumn("By", dispensable=2),
            ListColumn("When", dispensable=1),
        ],
        row=lambda move: (
            move.sequence,
            move.version if move.version is not None else "none",
            f"{move.kind.value} {move.target}",
            move.replaced if move.replaced is not None else "",
            move.by.email,
            move.created_at,
        ),
        key=lambda move: move.id,
        nothing="No version of the model was promoted yet.",
    )
