"""`slipway optuna`: studies that people keep with Optuna, and their storages."""

from typing import Annotated

import typer

from slipway.cli.completion import complete_optuna_storage
from slipway.cli.exits import UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.schemas.studies import StorageOut, StudyOut, StudyTrialOut

app = typer.Typer(
    no_args_is_help=True, help="Studies of Optuna in a project, their trials and storages."
)
StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="Id of the study.")]
StorageArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORAGE", help="Name of the storage.", autocompletion=complete_optuna_storage
    ),
]


@command(app, "list")
def list_studies(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only names that contain this text.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the studies of a project, newest first."""
    pages = session.client.optuna.list(project=session.project(project), search=search)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Study", style="bold"),
            ListColumn("Name", fit=CellOverflow.CLIPPED),
            ListColumn("Trials"),
            ListColumn("Best"),
            ListColumn("Storage", dispensable=1),
            ListColumn("Changed", dispensable=2),
        ],
        row=lambda study: (
            *(study.id, study.name, study.trials, _best(study)),
            *(study.storage, study.changed_at),
        ),
        key=lambda study: study.id,
        nothing="No study was found. Keep one with slipway.optuna_storage().",
    )


@command(app, "show")
def show(session: Session, study: StudyArgument, project: ProjectOption = None) -> None:
    """Show a study: goals, trials and the best one."""
    row = session.client.optuna.get(study, project=session.project(project))
    if session.output.as_json:
        session.output.document(row)
    elif session.output.quiet:
        session.output.line(row.id)
    else:
        best = f"{_best(row)} (trial {row.best.number})" if row.best else None
        session.output.facts(
            {
                "Study": row.id,
                "Name": row.name,
                "Storage": row.storage,
                "Goals": row.goals,
                "Trials": row.trials,
                "Running": row.running,
                "Best": best,
                "Created": row.created_at,
                "Changed": row.changed_at,
            }
        )


@command(app, "trials")
def list_trials(
    session: Session,
    study: StudyArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the trials of a study, newest first."""
    pages = session.client.optuna.trials(study, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Trial"),
            ListColumn("State"),
            ListColumn("Values"),
            ListColumn("Parameters", fit=CellOverflow.WRAPPED),
            ListColumn("Job", dispensable=1),
            ListColumn("Ended", dispensable=2),
        ],
        row=_trial_row,
        key=lambda trial: str(trial.number),
        nothing="No trial has started yet.",
    )


@command(app, "storages")
def list_storages(
    session: Session,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the storages of studies with their sizes, newest first."""
    pages = session.client.optuna.storages(project=session.project(project))
    storages = collect(pages, limit=limit, cursor=cursor)
    show_list(
        session,
        storages,
        columns=[
            ListColumn("Storage", style="bold"),
            ListColumn("Studies"),
            ListColumn("Entries"),
            ListColumn("MiB"),
            ListColumn("Problem"),
            ListColumn("By", fit=CellOverflow.WRAPPED, dispensable=2),
            ListColumn("Created", dispensable=1),
        ],
        row=lambda row: (
            *(row.name, row.studies, row.entries, f"{row.size_bytes / 1024**2:.1f}"),
            *(_problem(row), row.created_by.name, row.created_at),
        ),
        key=lambda row: row.name,
        nothing="No storage was found. The first study of slipway.optuna_storage() creates one.",
    )
    for storage in storages.items:
        if storage.next_step:
            reason = storage.replay_error or "It is full."
            session.output.note(f"{storage.name}: {reason} {storage.next_step}")


@command(app, "delete")
def delete(
    session: Session, storage: StorageArgument, project: ProjectOption = None, yes: Yes = False
) -> None:
    """Delete a storage with all its studies and trials. Jobs stay."""
    slug, optuna = session.project(project), session.client.optuna
    row = next((each for each in optuna.storages(project=slug) if each.name == storage), None)
    if row is None:
        raise UsageMistake(
            f"Project {slug} has no Optuna storage {storage}.",
            field="storage",
            next_step="List them: slipway optuna storages.",
        )
    confirm(
        f"Delete the Optuna storage {storage} of project {slug} with {_studies(row)} and all their "
        "trials? It cannot be restored.",
        yes=yes,
        output=session.output,
    )
    optuna.delete_storage(storage, project=slug)
    if session.output.as_json:
        session.output.document({"deleted": storage, "project": slug})
    session.output.note(f"Deleted the Optuna storage {storage} with {_studies(row)}.")


def _best(study: StudyOut) -> str | None:
    return f"{study.best.value:.6g}" if study.best else None


def _trial_row(trial: StudyTrialOut) -> tuple[object, ...]:
    values = ", ".join("-" if value is None else f"{value:.6g}" for value in trial.values)
    parameters = " ".join(
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in trial.parameters.items()
    )
    return trial.number, trial.state.value, values, parameters, trial.job, trial.ended_at


def _problem(storage: StorageOut) -> str | None:
    if storage.replay_error:
        return "broken"
    return "full" if storage.is_full else None


def _studies(storage: StorageOut) -> str:
    return f"{storage.studies} {'study' if storage.studies == 1 else 'studies'}"
