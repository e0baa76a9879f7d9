"""`slipway model predict` and `slipway model predictions`: datasets predicted by jobs."""

from enum import StrEnum
from typing import Annotated

import typer

from slipway.cli.environment_option import EnvironmentOption
from slipway.cli.exits import exit_code_of
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption
from slipway.cli.quantities import parse_pairs
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.train import (
    AttemptsOption,
    HoursOption,
    NameOption,
    PoolOption,
    PreemptibleOption,
    PriorityOption,
    TagOption,
    TierOption,
    price_text,
    show_quote,
)
from slipway.cli.watch import watch
from slipway.schemas.batch_predictions import BatchPredictionOut, BatchPredictionQuote, rows_text
from slipway.schemas.money import dollars

app = typer.Typer()


class OnErrorChoice(StrEnum):
    """Choices at a row that the model refuses."""

    STOP = "stop"
    SKIP = "skip"


ModelVersionArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL[@VERSION]",
        help="A model, with a number, an alias or a stage: digits@3, digits@production. "
        "Default: its latest version.",
    ),
]
DataOption = Annotated[
    str, typer.Option("--data", metavar="NAME:VERSION", help="Dataset version to predict.")
]
OutputOption = Annotated[
    str, typer.Option("--output", metavar="NAME", help="Dataset that gets the predictions.")
]
TableOption = Annotated[
    str | None, typer.Option("--table", help="Table of the dataset, if it has several.")
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="COLUMN",
        help="Column to keep in the output. Repeatable. Default: all.",
    ),
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="COLUMN",
        help="Column that the model gets. Repeatable. Default: those of its signature, or all.",
    ),
]
OnErrorOption = Annotated[
    OnErrorChoice,
    typer.Option("--on-error", help="Stop at a row that the model refuses, or skip it."),
]
QuoteOption = Annotated[
    bool, typer.Option("--quote", help="Only print the price and what would be used.")
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Show the log until it ends.")]


@command(app, "predict")
def predict(
    session: Session,
    model: ModelVersionArgument,
    data: DataOption,
    output: OutputOption,
    table: TableOption = None,
    keep: KeepOption = None,
    column: ColumnOption = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    environment: EnvironmentOption = None,
    tier: TierOption = None,
    pool: PoolOption = None,
    name: NameOption = None,
    tag: TagOption = None,
    priority: PriorityOption = None,
    max_attempts: AttemptsOption = None,
    max_hours: HoursOption = None,
    preemptible: PreemptibleOption = False,
    quote: QuoteOption = False,
    watch_it: WatchOption = False,
    project: ProjectOption = None,
) -> None:
    """Predict a dataset with a version of a model, by a job. The result is a dataset version."""
    slug = session.project(project)
    name_of_model, _, version = model.partition("@")
    resource = session.client.batch_predictions
    options = {
        "environment": environment,
        "name": name,
        "tier": tier,
        "pool": pool,
        "priority": priority,
        "max_attempts": max_attempts,
        "max_hours": max_hours,
        "preemptible": preemptible or None,
        "tags": parse_pairs(tag or (), option="--tag") or None,
    }
    ask = resource.quote if quote else resource.create
    made = ask(
        name_of_model,
        project=slug,
        version=version or None,
        data=data,
        output=output,
        table=table,
        keep=keep,
        columns=column,
        on_error=on_error.value,
        **options,
    )
    if isinstance(made, BatchPredictionQuote):
        _show_quote(session, made)
        return
    if watch_it and not session.output.as_json and not session.output.quiet:
        _show(session, made)
        watch(session, session.client.jobs.get(made.id, project=slug))
    if watch_it:
        made = resource.wait(made.id, project=slug)
    _show(session, made)
    if watch_it:
        raise typer.Exit(exit_code_of(made.state))


@command(app, "predictions")
def list_predictions(
    session: Session,
    search: Annotated[
        str | None,
        typer.Option("--search", "-s", help="Only models, data and outputs that contain this."),
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
    project: ProjectOption = None,
) -> None:
    """List the batch predictions of a project, newest first."""
    pages = session.client.batch_predictions.list(project=session.project(project), search=search)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id", style="bold"),
            ListColumn("State"),
            ListColumn("Model"),
            ListColumn("Data"),
            ListColumn("Output", fit=CellOverflow.WRAPPED),
            ListColumn("Rows", dispensable=2),
            ListColumn("When", dispensable=1),
        ],
        row=lambda prediction: (
            prediction.id,
            prediction.state.value,
            f"{prediction.model}@{prediction.version}",
            prediction.data,
            prediction.output_version or prediction.output,
            prediction.rows if prediction.rows is not None else "",
            prediction.created_at,
        ),
        key=lambda prediction: prediction.id,
        nothing="No batch prediction yet. Start one: slipway model predict MODEL --data DATASET "
        "--output NAME.",
    )


@command(app, "prediction")
def show_prediction(
    session: Session,
    job: Annotated[str, typer.Argument(metavar="ID", help="Id of the batch prediction.")],
    project: ProjectOption = None,
) -> None:
    """Show a batch prediction. Its log is that of a job: slipway job logs ID."""
    _show(session, session.client.batch_predictions.get(job, project=session.project(project)))


def _show_quote(session: Session, quoted: BatchPredictionQuote) -> None:
    if session.output.as_json:
        session.output.document(quoted)
        return
    session.output.facts(
        {
            "Model": f"{quoted.model}@{quoted.version}",
            "Data": f"{quoted.data}, {quoted.table}, {rows_text(quoted.rows)}",
            "Columns for the model": quoted.columns,
        }
    )
    show_quote(session, quoted.quote)


def _show(session: Session, prediction: BatchPredictionOut) -> None:
    if session.output.as_json:
        session.output.document(prediction)
        return
    if session.output.quiet:
        session.output.line(prediction.id)
        return
    speed = prediction.rows_per_second
    session.output.facts(
        {
            "Id": prediction.id,
            "Page": session.client.batch_predictions.page(
                prediction.id, project=prediction.project
            ),
            "State": prediction.state,
            "Why": prediction.explanation,
            "Next step": prediction.next_step,
            "Model": f"{prediction.model}@{prediction.version}",
            "Data": f"{prediction.data}, {prediction.table}",
            "Output": prediction.output_version or f"{prediction.output} (no version yet)",
            "Rows": None if prediction.rows is None else f"{prediction.rows:,}",
            "Failed rows": prediction.failed_rows,
            "First failure": prediction.first_failure or None,
            "Unreadable rows": prediction.left_out_rows or None,
            "Speed": None if speed is None else f"{speed:,.0f} rows a second",
            "Rows per call": prediction.rows_per_call,
            "Batching": prediction.batching or None,
            "Price": price_text(prediction.nano_usd_per_hour, 0),
            "Cost": dollars(prediction.cost_nano_usd),
        }
    )
