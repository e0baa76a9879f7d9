"""`slipway endpoint monitoring`: drift, quality, alerts, predictions, labels, selections."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from slipway.cli.audit import FileFormat, Since, Until
from slipway.cli.dates import parse_time
from slipway.cli.endpoint_keys import EndpointArgument
from slipway.cli.exits import UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.transfer import receive, receive_file
from slipway.sanitize import visible
from slipway.schemas.monitoring import MonitoringOut
from slipway.schemas.percent import percent
from slipway.schemas.quality import QualityPoint

app = typer.Typer(
    no_args_is_help=True, help="Monitoring: drift, quality, alerts, captured predictions."
)

_MOST_FEATURES = 30
FeatureOption = Annotated[
    str | None, typer.Option("--feature", help="An input or output, with --is and --value.")
]
OperatorOption = Annotated[str | None, typer.Option("--is", help="=, !=, <, <=, > or >=.")]
ValueOption = Annotated[str | None, typer.Option("--value", help="Value to compare with.")]


@command(app, "show")
def show(
    session: Session,
    endpoint: EndpointArgument,
    revision: Annotated[int | None, typer.Option("--revision", help="Only this revision.")] = None,
    feature: FeatureOption = None,
    operator: OperatorOption = None,
    value: ValueOption = None,
    project: ProjectOption = None,
) -> None:
    """Show drift, quality and alerts of an endpoint over the last 24 hours."""
    monitoring = session.client.endpoints.monitoring.show(
        endpoint,
        project=session.project(project),
        revision=revision,
        feature=feature,
        operator=operator,
        value=value,
    )
    if session.output.as_json:
        session.output.document(monitoring)
        return
    session.output.facts(_facts(monitoring))
    session.output.table(
        [
            ListColumn("Feature", style="bold"),
            ListColumn("Verdict"),
            ListColumn("Rows"),
            ListColumn("Changed"),
            ListColumn("PSI", dispensable=2),
            ListColumn("Missing", dispensable=1),
        ],
        [
            (
                f"{item.name} (output)" if item.is_output else item.name,
                item.verdict.value.replace("_", " "),
                item.rows,
                percent(item.share),
                f"{item.psi:.3f}",
                percent(item.missing_share),
            )
            for item in monitoring.features[:_MOST_FEATURES]
        ],
    )
    if len(monitoring.features) > _MOST_FEATURES:
        left = len(monitoring.features) - _MOST_FEATURES
        session.output.line(
            f"{left} of {len(monitoring.features)} features are left out; see --json."
        )
    session.output.note_omitted(monitoring.features_left_out, "feature")
    if monitoring.quality.labels_left_out:
        session.output.note(
            f"{monitoring.quality.labels_left_out:,} older labels of the time range are not "
            "counted. Choose a shorter time range."
        )


def _facts(monitoring: MonitoringOut) -> dict[str, Any]:
    firing = [alert for alert in monitoring.alerts if alert.state == "firing"]
    return {
        "Endpoint": monitoring.endpoint,
        "Verdict": monitoring.verdict.value.replace("_", " "),
        "Compared with": monitoring.baseline or "nothing yet",
        "Predictions": monitoring.predictions,
        "Captured": (
            f"{monitoring.captured:,} of {monitoring.captured + monitoring.uncaptured:,} answered"
        ),
        "Served by standby": monitoring.answered_as_standby or None,
        "Task": _task(monitoring),
        "Quality": _quality(monitoring.quality),
        "Withheld": "; ".join(
            f"{name}: {reason}" for name, reason in monitoring.quality.withheld.items()
        )
        or None,
        "Empty labels": monitoring.empty_labels or None,
        "Alerts": "; ".join(alert.reason for alert in firing) or "none",
        "Evaluated at": monitoring.processed_at,
        "Last error": monitoring.fault or None,
    }


def _task(monitoring: MonitoringOut) -> str:
    task = monitoring.task.task.replace("_", "-") or "unknown"
    labels = f", labels: {monitoring.task.label_type}" if monitoring.task.label_type else ""
    return f"{task}{labels}. {monitoring.task.reason}"


def _quality(point: QualityPoint) -> str:
    parts = [f"{name} {value:.4g}" for name, value in point.figures.items()]
    parts.append(f"{percent(point.coverage, 0)} labelled")
    low, high = point.estimate_low, point.estimate_high
    if point.estimate is not None and low is not None and high is not None:
        parts.append(
            f"accuracy estimated at {percent(point.estimate)} "
            f"({percent(low)} to {percent(high)}; blind to concept drift)"
        )
    return ", ".join(parts)


@command(app, "set")
def change(
    session: Session,
    endpoint: EndpointArgument,
    settings: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="Such as min_accuracy=0.9.")
    ],
    project: ProjectOption = None,
) -> None:
    """Change the monitoring settings of an endpoint. `show --json` lists them."""
    changes: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UsageMistake(
                f"{visible(setting)} is not NAME=VALUE.",
                field="settings",
                next_step="For example: min_accuracy=0.9, or max_p95_ms=null to switch it off.",
            )
        try:
            changes[name] = json.loads(text)
        except ValueError:
            changes[name] = text
    monitor_settings = session.client.endpoints.monitoring.change(
        endpoint, project=session.project(project), **changes
    )
    if session.output.as_json:
        session.output.document(monitor_settings)
    else:
        session.output.facts(
            {name: str(value) for name, value in monitor_settings.model_dump().items()}
        )


@command(app, "alerts")
def alerts(
    session: Session,
    endpoint: EndpointArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List an endpoint's alerts, newest first."""
    pages = session.client.endpoints.monitoring.alerts(endpoint, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id", style="bold"),
            ListColumn("What"),
            ListColumn("State"),
            ListColumn("Since"),
            ListColumn("Why"),
        ],
        row=lambda alert: (
            alert.id,
            alert.kind.replace("_", " "),
            alert.state,
            alert.created_at,
            alert.reason,
        ),
        key=lambda item: item.id,
        nothing="There are no alerts yet.",
    )


@command(app, "snooze")
def snooze(
    session: Session,
    endpoint: EndpointArgument,
    alert: Annotated[str, typer.Argument(metavar="ALERT", help="Id of the alert.")],
    hours: Annotated[float | None, typer.Option("--hours", help="Duration in hours (24).")] = None,
    project: ProjectOption = None,
) -> None:
    """Pause the notifications of an alert for some hours."""
    session.client.endpoints.monitoring.snooze(
        endpoint, alert, project=session.project(project), hours=hours
    )
    session.output.note("Snoozed.")


@command(app, "add-channel")
def add_channel(
    session: Session,
    endpoint: EndpointArgument,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="email, webhook or slack.")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="E-mail address of a member, or a URL.")
    ],
    project: ProjectOption = None,
) -> None:
    """Send alerts to an address. The secret that signs a webhook is shown once."""
    made = session.client.endpoints.monitoring.add_channel(
        endpoint, kind, target, project=session.project(project)
    )
    if session.output.as_json:
        session.output.document(made)
    elif session.output.quiet:
        session.output.line(made.id)
    else:
        session.output.facts({"Id": made.id, "Target": made.target, "Secret": made.secret or None})


@command(app, "channels")
def channels(session: Session, endpoint: EndpointArgument, project: ProjectOption = None) -> None:
    """List the notification channels of alerts."""
    alert_channels = session.client.endpoints.monitoring.channels(
        endpoint, project=session.project(project)
    )
    if session.output.as_json:
        session.output.document(
            {"items": [alert_channel.model_dump(mode="json") for alert_channel in alert_channels]}
        )
        return
    columns = [
        ListColumn("Id", style="bold"),
        ListColumn("Kind"),
        ListColumn("Target"),
        ListColumn("Last error"),
    ]
    rows = [
        (alert_channel.id, alert_channel.kind, alert_channel.target, alert_channel.last_error)
        for alert_channel in alert_channels
    ]
    session.output.table(columns, rows)


@command(app, "remove-channel")
def remove_channel(
    session: Session,
    endpoint: EndpointArgument,
    channel: Annotated[str, typer.Argument(metavar="ID", help="Id, as `channels` lists it.")],
    project: ProjectOption = None,
) -> None:
    """Stop sending alerts to a channel."""
    session.client.endpoints.monitoring.remove_channel(
        endpoint, channel, project=session.project(project)
    )
    session.output.note("Removed.")


@command(app, "predictions")
def predictions(
    session: Session,
    endpoint: EndpointArgument,
    prediction: Annotated[str | None, typer.Option("--id", help="One prediction.")] = None,
    own: Annotated[str | None, typer.Option("--own", help="The client's own id.")] = None,
    caller: Annotated[str | None, typer.Option("--caller", help="Id of a key.")] = None,
    version: Annotated[str | None, typer.Option("--version", help="Version of the model.")] = None,
    feature: FeatureOption = None,
    operator: OperatorOption = None,
    value: ValueOption = None,
    status: Annotated[
        str | None, typer.Option("--status", help="answered, failed, or a status code such as 503.")
    ] = None,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List captured predictions, newest first. --json shows full inputs and outputs."""
    pages = session.client.endpoints.monitoring.predictions(
        endpoint,
        project=session.project(project),
        prediction_id=prediction,
        own_id=own,
        caller=caller,
        model_version=version,
        feature=feature,
        operator=operator,
        value=value,
        status=status,
    )
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id", style="bold"),
            ListColumn("When"),
            ListColumn("Version", dispensable=1),
            ListColumn("Output", fit=CellOverflow.CLIPPED),
            ListColumn("Truth"),
        ],
        row=lambda prediction: (
            prediction.prediction_id,
            prediction.at,
            prediction.model_version,
            _shortly(prediction.outputs)
            if prediction.status == 200
            else f"failed ({prediction.status})",
            prediction.label,
        ),
        key=lambda item: item.prediction_id,
        nothing="No captured prediction matches.",
    )


@command(app, "export")
def export(
    session: Session,
    endpoint: EndpointArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; standard output if left out."),
    ] = None,
    format: Annotated[  # noqa: A002  (the word of the API)
        FileFormat, typer.Option("--format", help="Format of the file.")
    ] = FileFormat.CSV,
    prediction: Annotated[str | None, typer.Option("--id", help="One prediction.")] = None,
    own: Annotated[str | None, typer.Option("--own", help="The client's own id.")] = None,
    caller: Annotated[str | None, typer.Option("--caller", help="Id of a key.")] = None,
    version: Annotated[str | None, typer.Option("--version", help="Version of the model.")] = None,
    feature: FeatureOption = None,
    operator: OperatorOption = None,
    value: ValueOption = None,
    status: Annotated[
        str | None, typer.Option("--status", help="answered, failed, or a status code such as 503.")
    ] = None,
    since: Since = None,
    until: Until = None,
    selection: Annotated[
        str | None, typer.Option("--selection", help="Only rows of this selection.")
    ] = None,
    yes: Yes = False,
    project: ProjectOption = None,
) -> None:
    """Export captured predictions to a file, newest first, exactly as sent."""
    if output is None and (session.output.as_json or sys.stdout.isatty()):
        raise UsageMistake(
            "The export needs an output file.",
            next_step="Add --output predictions.csv to the command.",
        )
    if output is not None and output.exists():
        confirm(f"Replace the file {output}?", yes=yes, output=session.output)
    download = session.client.endpoints.monitoring.export(
        endpoint,
        project=session.project(project),
        format="jsonl" if format is FileFormat.JSONL else "csv",
        selection=selection,
        prediction_id=prediction,
        own_id=own,
        caller=caller,
        model_version=version,
        feature=feature,
        operator=operator,
        value=value,
        status=status,
        since=parse_time(since, option="--since"),
        until=parse_time(until, option="--until"),
    )
    with download as content:
        rows = content.number("x-slipway-rows", None)
        left_out = content.number("x-slipway-rows-left-out", 0) or 0
        if output is None:
            receive(session, content, sys.stdout.buffer, label="Exporting")
            return
        size_bytes = receive_file(session, content, output, label="Exporting")
    if session.output.as_json:
        session.output.document(
            {
                "path": str(output),
                "size_bytes": size_bytes,
                "format": format.value,
                "rows": rows,
                "rows_left_out": left_out,
            }
        )
    elif session.output.quiet:
        session.output.line(str(output))
    being_erased = f" {left_out:,} rows are being erased and left out." if left_out else ""
    session.output.note(f"{output}: {rows:,} rows, {size_bytes:,} bytes.{being_erased}")


def _shortly(outputs: dict[str, Any]) -> str:
    value = outputs.get("class", outputs.get("prediction"))
    return str(value if value is not None else outputs)


@command(app, "label")
def label(
    session: Session,
    endpoint: EndpointArgument,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CSV, JSON lines or Parquet with prediction_id or own_id, value and optionally "
            "row.",
        ),
    ],
    project: ProjectOption = None,
) -> None:
    """Upload labels (ground truth) for predictions. Repeating an upload changes nothing."""
    done = session.client.endpoints.monitoring.label_file(
        endpoint, file, project=session.project(project)
    )
    if session.output.as_json:
        session.output.document(done)
    else:
        session.output.facts(
            {
                "New": done.added,
                "Same": done.same,
                "Changed": done.changed,
                "Empty, skipped": done.empty,
            }
        )


@command(app, "select")
def select(
    session: Session,
    endpoint: EndpointArgument,
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="Created if it does not exist.")
    ],
    everything: Annotated[
        bool, typer.Option("--with-unlabelled", help="Include unlabelled predictions.")
    ] = False,
    feature: FeatureOption = None,
    operator: OperatorOption = None,
    value: ValueOption = None,
    project: ProjectOption = None,
) -> None:
    """Export labelled predictions as the next version of a dataset."""
    made = session.client.endpoints.monitoring.select(
        endpoint,
        dataset,
        project=session.project(project),
        only_labelled=not everything,
        feature=feature,
        operator=operator,
        value=value,
    )
    if session.output.as_json:
        session.output.document(made)
    elif session.output.quiet:
        session.output.line(made.id)
    else:
        session.output.note(f"{made.dataset} gets another version within a minute.")


@command(app, "erase")
def erase(
    session: Session,
    endpoint: EndpointArgument,
    prediction: Annotated[str | None, typer.Option("--id", help="One prediction.")] = None,
    own: Annotated[str | None, typer.Option("--own", help="The client's own id.")] = None,
    yes: Yes = False,
    project: ProjectOption = None,
) -> None:
    """Erase predictions and their labels from all stored data."""
    place = session.project(project)
    confirm(
        f"Erase the predictions of {prediction or own} by {endpoint}? It cannot be undone.",
        yes=yes,
        output=session.output,
    )
    made = session.client.endpoints.monitoring.erase(
        endpoint, project=place, prediction_id=prediction, own_id=own
    )
    if session.output.as_json:
        session.output.document(made)
    else:
        session.output.note("They are erased within a minute.")
