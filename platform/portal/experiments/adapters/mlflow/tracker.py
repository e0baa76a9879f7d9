"""The Tracker over MLflow's tables."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from portal.experiments.adapters.mlflow.curves import curves_of, first_values_of
from portal.experiments.adapters.mlflow.search import (
    COLUMNS,
    experiments_of,
    logged_of,
    page_of,
    run_facts,
    search_conditions,
    with_columns,
)
from portal.experiments.adapters.mlflow.sql import (
    Row,
    SqlConditions,
    column_of,
    like_condition,
    marks,
    number_of,
    rows,
    table_of,
)
from portal.experiments.filters import FieldKind, RunField
from portal.experiments.ports import (
    Axis,
    Curve,
    DataInput,
    ExperimentFacts,
    FieldListing,
    LatestValue,
    RunDetail,
    RunFacts,
    RunGroup,
    RunPage,
    RunSearch,
    Span,
    Stage,
)

_SAMPLED_RUNS = 120
_SAMPLED_ROWS = 60_000
_LOGGED = (FieldKind.METRIC, FieldKind.PARAM, FieldKind.TAG)


class SqlTracker:
    """Reads MLflow's tables. See `portal.experiments.ports.Tracker` for the methods."""

    def experiments(
        self, project_id: str, *, stage: Stage = Stage.ACTIVE, text: str = ""
    ) -> Sequence[ExperimentFacts]:
        """Return the experiments whose name holds `text`, the one used last first."""
        where = SqlConditions()
        where.add("e.workspace = %s", project_id)
        where.add("e.lifecycle_stage = %s", stage.value)
        if text:
            plain = "".join(f"\\{c}" if c in "%_\\" else c for c in text)
            test, pattern = like_condition("e.name", f"%{plain}%", ignores_case=True)
            where.add(f"{test} ESCAPE '\\'", pattern)
        listed = rows(
            "SELECT e.experiment_id, e.name, e.lifecycle_stage, e.creation_time, "
            "e.last_update_time, t.value FROM experiments e "
            "LEFT JOIN experiment_tags t ON t.experiment_id = e.experiment_id AND t.key = %s "
            f"WHERE {where.text}",
            ["mlflow.note.content", *where.values],
        )
        counts = _counts([row[0] for row in listed])
        experiments = [_experiment(row, counts.get(row[0], (0, None))) for row in listed]
        return sorted(experiments, key=lambda it: (-(it.newest_ms or it.created_ms or 0), -it.id))

    def search(self, run_search: RunSearch) -> RunPage:
        """Return a page of runs."""
        return page_of(run_search)

    def groups(self, run_search: RunSearch, by: RunField) -> Sequence[RunGroup]:
        """Return runs by their value of a field, the largest groups first, `limit` at most."""
        experiments = experiments_of(run_search)
        if not experiments:
            return []
        where = search_conditions(run_search, experiments)
        value, joins, values = _grouped_by(by)
        means = [column for column in run_search.columns or () if column.kind is FieldKind.METRIC]
        selected = [f"{value} AS grouped", "count(*)", "max(r.start_time)"]
        for number, column in enumerate(means):
            joined = f"m{number}"
            joins += (
                f" LEFT JOIN latest_metrics {joined} ON {joined}.run_uuid = r.run_uuid "
                f"AND {joined}.key = %s AND NOT {joined}.is_nan"
            )
            values.append(column.key)
            selected.append(f"avg({joined}.value)")
        listed = rows(
            f"SELECT {', '.join(selected)} FROM runs r{joins} WHERE {where.text} "
            f"GROUP BY grouped ORDER BY count(*) DESC, max(r.start_time) DESC "
            f"LIMIT {run_search.limit}",
            [*values, *where.values],
        )
        return [_group(row, means) for row in listed]

    def fields(self, run_search: RunSearch) -> FieldListing:
        """Return which metrics, parameters and tags runs have, those of most runs first.

        Looks at the newest runs and at the oldest, never at all of many.
        """
        run_ids, is_complete = _sampled(run_search)
        counted: dict[RunField, int] = {}
        for kind in _LOGGED if run_ids else ():
            listed = rows(
                f"SELECT key, count(*) FROM (SELECT v.key FROM {table_of(kind)} v "
                f"WHERE v.run_uuid IN ({marks(run_ids)}) LIMIT {_SAMPLED_ROWS}) seen "
                "GROUP BY key",
                run_ids,
            )
            counted |= {RunField(kind, key): count for key, count in listed}
            is_complete = is_complete and sum(count for _, count in listed) < _SAMPLED_ROWS
        order = {kind: number for number, kind in enumerate(_LOGGED)}
        run_fields = sorted(counted, key=lambda it: (order[it.kind], -counted[it], it.key))
        return FieldListing(run_fields, len(run_ids), is_complete)

    def run(self, project_id: str, run_id: str) -> RunDetail | None:
        """Return one run, in use or in the trash."""
        listed = rows(
            f"SELECT {COLUMNS}, e.name, r.artifact_uri FROM runs r "
            "JOIN experiments e ON e.experiment_id = r.experiment_id "
            "WHERE r.run_uuid = %s AND e.workspace = %s",
            [run_id, project_id],
        )
        if not listed:
            return None
        details = replace(
            run_facts(listed[0]),
            params=logged_of(FieldKind.PARAM, [run_id]).get(run_id, {}),
            tags=logged_of(FieldKind.TAG, [run_id]).get(run_id, {}),
        )
        latest = _latest_metrics(run_id)
        details = replace(details, metrics={value.key: value.value for value in latest})
        experiment, artifact_uri = listed[0][-2], listed[0][-1] or ""
        return RunDetail(details, experiment, artifact_uri, latest, _inputs(run_id))

    def project_of_run(self, run_id: str) -> str | None:
        """Return the id of the project of a run."""
        listed = rows(
            "SELECT e.workspace FROM runs r JOIN experiments e "
            "ON e.experiment_id = r.experiment_id WHERE r.run_uuid = %s",
            [run_id],
        )
        return str(listed[0][0]) if listed else None

    def project_of_experiment(self, experiment_id: int) -> str | None:
        """Return the id of the project of an experiment."""
        listed = rows("SELECT workspace FROM experiments WHERE experiment_id = %s", [experiment_id])
        return str(listed[0][0]) if listed else None

    def runs(self, project_id: str, run_ids: Sequence[str]) -> Sequence[RunFacts]:
        """Return runs in use with all their values, in the order asked for."""
        listed = [run_facts(row) for row in _project_runs(project_id, run_ids)]
        values = {run.id: run for run in with_columns(listed, None)}
        return [values[run_id] for run_id in dict.fromkeys(run_ids) if run_id in values]

    def with_columns(
        self, runs: Sequence[RunFacts], columns: Sequence[RunField]
    ) -> Sequence[RunFacts]:
        """Return runs that were found before with the values of these fields."""
        return with_columns(runs, columns)

    def curves(
        self,
        project_id: str,
        run_ids: Sequence[str],
        keys: Sequence[str],
        *,
        most_points: int,
        axis: Axis = "step",
        span: Span | None = None,
    ) -> Sequence[Curve]:
        """Return the curves there are, each of at most about `most_points`.

        `span` limits them to a part of the axis, both ends included.
        """
        owned = {row[0] for row in _project_runs(project_id, run_ids)}
        ids = [run_id for run_id in dict.fromkeys(run_ids) if run_id in owned]
        return curves_of(
            ids, list(dict.fromkeys(keys)), most_points=most_points, axis=axis, span=span
        )

    def first_values(
        self, project_id: str, run_id: str, key: str, *, count: int
    ) -> Sequence[float]:
        """Return the first values of a metric in the order of steps, `count` at most."""
        if not _project_runs(project_id, [run_id]):
            return []
        return first_values_of(run_id, key, count=count)


def _project_runs(project_id: str, run_ids: Sequence[str]) -> list[Row]:
    if not run_ids:
        return []
    return rows(
        f"SELECT {COLUMNS} FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id "
        f"WHERE r.run_uuid IN ({marks(run_ids)}) AND e.workspace = %s "
        "AND r.lifecycle_stage = 'active'",
        [*run_ids, project_id],
    )


def _counts(experiments: Sequence[int]) -> dict[int, tuple[int, int | None]]:
    """Return of each experiment how many runs are in use, and when the last of them began."""
    if not experiments:
        return {}
    listed = rows(
        "SELECT experiment_id, count(*), max(start_time) FROM runs "
        f"WHERE experiment_id IN ({marks(experiments)}) AND lifecycle_stage = 'active' "
        "GROUP BY experiment_id",
        experiments,
    )
    return {row[0]: (row[1], row[2]) for row in listed}


def _experiment(row: Row, counted: tuple[int, int | None]) -> ExperimentFacts:
    stage = Stage(row[2])
    return ExperimentFacts(
        id=row[0],
        name=row[1],
        stage=stage,
        note=row[5] or "",
        created_ms=row[3],
        deleted_ms=row[4] if stage is Stage.DELETED else None,
        runs=counted[0],
        newest_ms=counted[1],
    )


def _grouped_by(by: RunField) -> tuple[str, str, list[Any]]:
    """Return the value runs are grouped by, what is joined for it, and the parameters of that."""
    if by.kind is FieldKind.ATTRIBUTE:
        return column_of(by.key), "", []
    joined = f" LEFT JOIN {table_of(by.kind)} g ON g.run_uuid = r.run_uuid AND g.key = %s"
    return "g.value", joined, [by.key]


def _group(row: Row, means: Sequence[RunField]) -> RunGroup:
    numbers_by_key = {
        column.key: number_of(row[3 + number], is_nan=False)
        for number, column in enumerate(means)
        if row[3 + number] is not None
    }
    return RunGroup(None if row[0] is None else str(row[0]), row[1], row[2], numbers_by_key)


def _sampled(run_search: RunSearch) -> tuple[list[str], bool]:
    """Return the newest and the oldest runs, and whether these are all."""
    experiments = experiments_of(run_search)
    if not experiments:
        return [], True
    place = f"experiment_id IN ({marks(experiments)}) AND lifecycle_stage = %s"
    values = [*experiments, run_search.stage.value]
    half = _SAMPLED_RUNS // 2
    newest = rows(
        f"SELECT run_uuid FROM runs WHERE {place} ORDER BY start_time DESC LIMIT {half + 1}", values
    )
    items = [row[0] for row in newest[:half]]
    if len(newest) <= half:
        return items, True
    # Runs log different keys over time, so the oldest ones are read too.
    oldest = rows(
        f"SELECT run_uuid FROM runs WHERE {place} ORDER BY start_time LIMIT {half}", values
    )
    return list(dict.fromkeys([*items, *(row[0] for row in oldest)])), False


def _latest_metrics(run_id: str) -> list[LatestValue]:
    listed = rows(
        "SELECT key, value, is_nan, step, timestamp FROM latest_metrics "
        "WHERE run_uuid = %s ORDER BY key",
        [run_id],
    )
    return [
        LatestValue(key, number_of(value, is_nan=bool(is_nan)), step, timestamp or 0)
        for key, value, is_nan, step, timestamp in listed
    ]


def _inputs(run_id: str) -> list[DataInput]:
    listed = rows(
        "SELECT d.name, d.digest, d.dataset_source_type, d.dataset_source, t.value FROM inputs i "
        "JOIN datasets d ON d.dataset_uuid = i.source_id "
        "LEFT JOIN input_tags t ON t.input_uuid = i.input_uuid AND t.name = %s "
        "WHERE i.destination_type = 'RUN' AND i.destination_id = %s AND i.source_type = 'DATASET' "
        "ORDER BY d.name",
        ["mlflow.data.context", run_id],
    )
    return [DataInput(row[0], row[1], row[2], row[3], row[4] or "") for row in listed]
