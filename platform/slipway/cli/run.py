"""`slipway run`: list, show, compare, edit, delete and restore tracked runs."""

import math
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.quantities import parse_pairs
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.transfer import receive_file
from slipway.schemas.base import PageOf
from slipway.schemas.experiments import ArtifactOut, RunOut, SavedViewOut
from slipway.schemas.logged_models import LoggedModelOut
from slipway.snapshots.limits import size_text

app = typer.Typer(
    no_args_is_help=True,
    help="Tracked runs: list, show, compare, edit, artifacts, models, delete, restore.",
)
_MOST_SHOWN = 6

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")]
RunsArgument = Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of runs.")]


def _number(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:.6g}" if math.isfinite(value) else str(value)


def _metrics_summary(run: RunOut) -> str:
    shown = [f"{key} {_number(value)}" for key, value in run.metrics.items()]
    rest = len(shown) - _MOST_SHOWN
    return ", ".join(shown[:_MOST_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


@command(app, "list")
def list_runs(
    session: Session,
    project: ProjectOption = None,
    filter_text: Annotated[
        str | None,
        typer.Option("--filter", "-f", help="Filter in MLflow's syntax: metrics.loss < 0.5"),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option("--search", "-s", help="Words in name, person, tags, parameters or id."),
    ] = None,
    experiment: Annotated[
        list[int] | None, typer.Option("--experiment", "-e", help="Only this experiment.")
    ] = None,
    order: Annotated[
        str | None, typer.Option("--order", help="Sort key, such as metrics.loss or -metrics.loss.")
    ] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Only runs in the trash.")] = False,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the runs of a project, newest first."""
    pages = session.client.runs.list(
        project=session.project(project),
        search=search or None,
        filter=filter_text or None,
        experiments=experiment or (),
        order=order,
        deleted=deleted,
    )
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id"),
            ListColumn("Name", fit=CellOverflow.WRAPPED, style="bold"),
            ListColumn("Status"),
            ListColumn("Experiment", dispensable=4),
            ListColumn("By", fit=CellOverflow.WRAPPED, dispensable=5),
            ListColumn("Started", dispensable=1),
            ListColumn("Metrics", fit=CellOverflow.CLIPPED, dispensable=2),
        ],
        row=lambda r: (
            *(r.id, r.name, r.status, r.experiment_id, r.user, r.started_at, _metrics_summary(r)),
        ),
        key=lambda r: r.id,
        nothing="No run was found.",
    )


@command(app, "experiments")
def list_experiments(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only names that contain this text.")
    ] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Only runs in the trash.")] = False,
) -> None:
    """List the experiments of a project, most recently used first."""
    experiments = session.client.experiments.list(
        project=session.project(project), search=search, deleted=deleted
    )
    show_list(
        session,
        PageOf(items=list(experiments)),
        columns=[
            ListColumn("Id"),
            ListColumn("Name", fit=CellOverflow.WRAPPED, style="bold"),
            ListColumn("Runs"),
            ListColumn("Last run", dispensable=1),
            ListColumn("Created", dispensable=2),
        ],
        row=lambda e: (e.id, e.name, e.runs, e.newest_run_at, e.created_at),
        key=lambda e: str(e.id),
        nothing="Nothing is tracked here yet. How to: docs/experiments.md",
    )


@command(app, "show")
def show_run(session: Session, run: RunArgument, project: ProjectOption = None) -> None:
    """Show one run with all that was logged to it."""
    slug = session.project(project)
    result = session.client.runs.get(run, project=slug)
    if session.output.as_json:
        session.output.document(result)
        return
    if session.output.quiet:
        session.output.line(result.id)
        return
    session.output.facts(
        {
            "Id": result.id,
            "Name": result.name,
            "Experiment": result.experiment,
            "Status": result.status,
            "By": result.user,
            "Job": result.job,
            "Started": result.started_at,
            "Ended": result.ended_at,
            "Parameters": [f"{key}={value}" for key, value in result.params.items()],
            "Metrics": [f"{key} {_number(value)}" for key, value in result.metrics.items()],
            "Read": [f"{it.name} ({it.digest})" for it in result.inputs],
            "Page": session.client.runs.page(result.id, project=slug),
        }
    )


@command(app, "compare")
def compare(session: Session, runs: RunsArgument, project: ProjectOption = None) -> None:
    """Show runs side by side: parameters that differ, and their metrics."""
    comparison = session.client.runs.compare(runs, project=session.project(project))
    if session.output.as_json:
        session.output.document(comparison)
        return
    columns = [ListColumn("Run", style="bold"), ListColumn("Status", dispensable=1)]
    names = [*comparison.differing_params, *comparison.metrics]
    columns += [ListColumn(name, dispensable=at + 2) for at, name in enumerate(names)]
    session.output.table(
        columns,
        [
            [
                *(run.id if session.output.quiet else run.name or run.id, run.status),
                *(run.params.get(name) for name in comparison.differing_params),
                *(_number(run.metrics.get(name)) for name in comparison.metrics),
            ]
            for run in comparison.runs
        ],
    )
    missing = len(set(runs)) - len(comparison.runs)
    if missing:
        verb = "is" if missing == 1 else "are"
        session.output.note(f"{missing} of the {len(set(runs))} runs {verb} missing here.")
    if comparison.common_params:
        same = ", ".join(f"{key}={value}" for key, value in comparison.common_params.items())
        session.output.note(f"Identical: {same}")


@command(app, "artifacts")
def artifacts(
    session: Session,
    run: RunArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder or file.")] = "",
    download: Annotated[
        Path | None, typer.Option("--download", metavar="FILE", help="Output file.")
    ] = None,
    yes: Yes = False,
    project: ProjectOption = None,
) -> None:
    """List the artifacts of a run, or download one."""
    slug = session.project(project)
    if download is None:
        items = session.client.runs.artifacts(run, project=slug, path=path)
        show_list(
            session,
            PageOf(items=list(items)),
            columns=[ListColumn("Path", fit=CellOverflow.WRAPPED), ListColumn("Size")],
            row=_artifact,
            key=lambda it: it.path,
            nothing="There is no artifact.",
        )
        return
    file = download / PurePosixPath(path).name if download.is_dir() else download
    if file.exists():
        confirm(f"Replace the file {file}?", yes=yes, output=session.output)
    with session.client.runs.download(run, path, project=slug) as content:
        size = receive_file(session, content, file, label="Receiving", option="--download")
    if session.output.as_json:
        session.output.document({"path": str(file), "size_bytes": size})
    elif session.output.quiet:
        session.output.line(str(file))
    session.output.note(f"{file}: {size:,} bytes.")


def _artifact(artifact: ArtifactOut) -> tuple[str, str]:
    return artifact.path, "folder" if artifact.is_folder else size_text(artifact.size_bytes)


@command(app, "models")
def models(session: Session, run: RunArgument, project: ProjectOption = None) -> None:
    """List the models that a run logged, and the versions they became."""
    items = session.client.runs.models(run, project=session.project(project))
    show_list(
        session,
        PageOf(items=list(items)),
        columns=[
            ListColumn("Model"),
            ListColumn("Step"),
            ListColumn("Flavours"),
            ListColumn("Size"),
            ListColumn("Registered as", fit=CellOverflow.WRAPPED),
            ListColumn("Source", fit=CellOverflow.WRAPPED),
        ],
        row=_logged_model,
        key=lambda it: it.source,
        nothing="The run logged no model.",
    )


def _logged_model(model: LoggedModelOut) -> tuple[str | None, ...]:
    return (
        model.name,
        None if model.step is None else str(model.step),
        model.fault or ", ".join(model.flavors) or model.state,
        None if model.size_bytes is None else size_text(model.size_bytes),
        ", ".join(f"{it.model} version {it.version}" for it in model.registered) or None,
        model.source,
    )


NamedTags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="NAME=VALUE", help="Tag to set. Repeatable."),
]
RemovedTags = Annotated[
    list[str] | None, typer.Option("--untag", metavar="NAME", help="Tag to remove. Repeatable.")
]


def _tags(named: list[str] | None, removed: list[str] | None) -> dict[str, str | None]:
    return {**parse_pairs(named or (), option="--tag"), **dict.fromkeys(removed or ())}


@command(app, "edit")
def edit(
    session: Session,
    run: RunArgument,
    name: Annotated[str | None, typer.Option("--name", help="New name.")] = None,
    note: Annotated[str | None, typer.Option("--note", help="Notes in Markdown.")] = None,
    tag: NamedTags = None,
    untag: RemovedTags = None,
    project: ProjectOption = None,
) -> None:
    """Change the name, the notes and tags of a run."""
    changed = session.client.runs.update(
        run,
        project=session.project(project),
        name=name,
        note=note,
        tags=_tags(tag, untag) or None,
    )
    if session.output.as_json:
        session.output.document(changed)
    elif session.output.quiet:
        session.output.line(changed.id)
    session.output.note(f"Changed the run {changed.name or changed.id}.")


@command(app, "tag")
def tag_runs(
    session: Session,
    runs: RunsArgument,
    tag: NamedTags = None,
    untag: RemovedTags = None,
    project: ProjectOption = None,
) -> None:
    """Set tags of several runs, or remove them."""
    changed = session.client.runs.tag(runs, _tags(tag, untag), project=session.project(project))
    _print_moved(session, [*changed], "tagged", named=len(set(runs)))


@command(app, "move")
def move(
    session: Session,
    runs: RunsArgument,
    to: Annotated[int, typer.Option("--to", metavar="EXPERIMENT", help="Id of the experiment.")],
    project: ProjectOption = None,
) -> None:
    """Move runs to another experiment. `slipway run experiments` lists their ids."""
    moved = session.client.runs.move(runs, to, project=session.project(project))
    _print_moved(session, [*moved], "moved", named=len(set(runs)))


@command(app, "delete")
def delete(session: Session, runs: RunsArgument, project: ProjectOption = None) -> None:
    """Move runs to the trash. `slipway run restore` restores them."""
    moved = session.client.runs.delete(runs, project=session.project(project))
    _print_moved(session, [*moved], "in the trash", named=len(set(runs)))


@command(app, "restore")
def restore(session: Session, runs: RunsArgument, project: ProjectOption = None) -> None:
    """Restore runs from the trash."""
    moved = session.client.runs.restore(runs, project=session.project(project))
    _print_moved(session, [*moved], "restored", named=len(set(runs)))


@command(app, "empty-trash")
def empty_trash(session: Session, yes: Yes = False, project: ProjectOption = None) -> None:
    """Permanently delete the runs in the trash, and print the freed bytes."""
    slug = session.project(project)
    confirm(f"Permanently delete every run in the trash of {slug}?", yes=yes, output=session.output)
    freed = session.client.experiments.empty_trash(project=slug)
    if session.output.as_json:
        session.output.document(freed)
    session.output.note(
        f"{freed.runs} runs deleted, {freed.files} files and {size_text(freed.size_bytes)} freed."
    )


def _print_moved(session: Session, moved: list[str], where: str, *, named: int) -> None:
    if session.output.as_json:
        session.output.document({"runs": moved})
    elif session.output.quiet:
        for run in moved:
            session.output.line(run)
    words = f"{len(moved)} run{'' if len(moved) == 1 else 's'} {where}."
    others = named - len(moved)
    if others:
        verb = "was" if others == 1 else "were"
        words += f" {others} of the {named} runs {verb} not changed."
    session.output.note(words)


@command(app, "views")
def list_views(session: Session, project: ProjectOption = None) -> None:
    """List the saved views of runs: those that the project shares, and your private ones."""
    views = session.client.runs.views.list(project=session.project(project))
    show_list(
        session,
        PageOf(items=list(views)),
        columns=[
            ListColumn("Id"),
            ListColumn("Name", fit=CellOverflow.WRAPPED, style="bold"),
            ListColumn("For", dispensable=3),
            ListColumn("Saved by", dispensable=2),
            ListColumn("Link", dispensable=1),
        ],
        row=lambda v: (
            *(v.id, v.name, _audience(v)),
            *(v.saved_by.email, v.link),
        ),
        key=lambda v: v.id,
        nothing="No view is saved. Save one: slipway run save-view NAME --query 'q=...'",
    )


def _audience(view: SavedViewOut) -> str:
    return "you alone" if view.private else "project"


@command(app, "save-view")
def save_view(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the view.")],
    query: Annotated[
        str,
        typer.Option("--query", help="What follows the question mark in the address of a list."),
    ] = "",
    experiment: Annotated[
        int | None, typer.Option("--experiment", "-e", help="Only this experiment.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="For you alone, not for the project.")
    ] = False,
    project: ProjectOption = None,
) -> None:
    """Save a view of runs for the project or for you, or replace the one of that name."""
    view = session.client.runs.views.save(
        name, query, project=session.project(project), experiment=experiment, private=private
    )
    if session.output.as_json:
        session.output.document(view)
    elif session.output.quiet:
        session.output.line(view.id)
    session.output.note(f"Saved the view {view.name}: {view.link}")


@command(app, "share-view")
def share_view(
    session: Session,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="Id of a private view of yours.")],
    project: ProjectOption = None,
) -> None:
    """Share a private view with the project."""
    shared = session.client.runs.views.share(view, project=session.project(project))
    if session.output.as_json:
        session.output.document(shared)
    elif session.output.quiet:
        session.output.line(shared.id)
    session.output.note(f"The project shares the view {shared.name}: {shared.link}")


@command(app, "delete-view")
def delete_view(
    session: Session,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="Id of the view.")],
    project: ProjectOption = None,
) -> None:
    """Delete a saved view. The runs stay."""
    session.client.runs.views.delete(view, project=session.project(project))
    if session.output.as_json:
        session.output.document({"id": view})
    elif session.output.quiet:
        session.output.line(view)
    session.output.note(f"The view {view} is deleted.")
