"""Registering and promoting models from Python, in a job, a notebook or at home."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from slipway.client import Client
from slipway.credentials import default_project
from slipway.errors import Conflict, InvalidInput
from slipway.model_files import is_local_path
from slipway.schemas.batch_predictions import BatchPredictionOut
from slipway.schemas.registry import (
    EvaluationOut,
    ModelVersionOut,
    MoveOut,
    PlanOut,
    RequestOut,
    VersionDetail,
)
from slipway.schemas.signatures import SignatureIn

_RUN_ID = re.compile(r"\A[0-9a-f]{32}\Z")
Golden = tuple[Any, Any]


def register(
    source: object,
    name: str,
    *,
    path: str = "model",
    format: str | None = None,  # noqa: A002  (the usual term)
    signature: SignatureIn | Mapping[str, Any] | None = None,
    batching: str | None = None,
    golden: Golden | None = None,
    absolute_tolerance: float | None = None,
    relative_tolerance: float | None = None,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
    project: str | None = None,
    client: Client | None = None,
) -> VersionDetail:
    """Register what a run logged, or a file, as the next version of the model `name`.

    `source` is a run (its id, or MLflow's object of it, whose model is at `path`), what
    `log_model` returned, a URI such as `runs:/…`, or the path of a file or folder here, which is
    sent. A file in ONNX, torch.export or TorchScript may stand by itself: `format` says which it
    has to be, and `signature` what goes in and comes out where the file does not tell. `golden`
    is a pair of inputs and the outputs the model gave for them, row by row (lists, arrays or data
    frames): wherever the version is loaded, it must give them again, within the tolerances.
    `batching` states how requests that wait together are predicted: `rows` merges them into one
    call, `requests` predicts each by itself, `off` one at a time. Without it they are merged only
    if the golden rows prove that no row changes the answer to another.
    """
    with _client_context(client) as opened:
        place = _project(opened, project)
        if is_local_path(source):
            uri = opened.models.upload(name, str(source), project=place)
        else:
            uri = source_of(source, path)
        made = opened.models.register(
            name,
            uri,
            project=place,
            format=format,
            signature=signature,
            batching=batching,
            description=description,
            tags=tags,
        )
        if golden is None:
            return made
        return opened.models.record_golden(
            name,
            made.version,
            project=place,
            inputs=rows_of(golden[0]),
            outputs=rows_of(golden[1]),
            absolute_tolerance=absolute_tolerance,
            relative_tolerance=relative_tolerance,
        )


def source_of(source: object, path: str = "model") -> str:
    """Return the URI of the model to register, or raise InvalidInput."""
    if isinstance(source, str):
        return f"runs:/{source}/{path}" if _RUN_ID.match(source) else source
    uri = getattr(source, "model_uri", None)
    run_id = getattr(getattr(source, "info", None), "run_id", None)
    if isinstance(uri, str):
        return uri
    if isinstance(run_id, str):
        return f"runs:/{run_id}/{path}"
    raise InvalidInput(
        f"A model cannot be registered from {type(source).__name__}.",
        field="source",
        next_step="Pass the id of a run, a URI, a path, or what log_model returned.",
    )


def rows_of(values: Any) -> list[Any]:
    """Return rows as JSON can carry them: of a data frame one mapping each, of an array lists."""
    if hasattr(values, "to_dict") and hasattr(values, "columns"):
        return list(values.to_dict(orient="records"))
    if hasattr(values, "tolist"):
        return list(values.tolist())
    return [_as_list(row) for row in values]


def _as_list(row: Any) -> Any:
    return row.tolist() if hasattr(row, "tolist") else row


class Model:
    """A registered model of a project: `slipway.Model("digits").promote("production")`."""

    def __init__(
        self, name: str, *, project: str | None = None, client: Client | None = None
    ) -> None:
        self.name = name
        self._project_name, self._client = project, client

    def __repr__(self) -> str:
        return f"<slipway.Model {self.name}>"

    def versions(self) -> Sequence[ModelVersionOut]:
        """Return the versions, newest first."""
        with _client_context(self._client) as client:
            return list(
                client.models.versions(self.name, project=_project(client, self._project_name))
            )

    def version(self, number: int) -> "ModelVersion":
        """Return one version, to be evaluated or promoted."""
        return ModelVersion(self, number)

    def latest(self) -> "ModelVersion":
        """Return the newest version, or raise InvalidInput when there is none."""
        with _client_context(self._client) as client:
            project = _project(client, self._project_name)
            newest = client.models.get(self.name, project=project).latest_version
        if newest is None:
            raise InvalidInput(
                f"The model {self.name} has no version.",
                next_step=f'Register one: slipway.register(run, "{self.name}").',
            )
        return self.version(newest)

    def promote(self, target: str, *, version: int | None = None, **how: Any) -> MoveOut:
        """Move a version, by default the newest, to a stage, or set an alias to it.

        `how` is as for `ModelVersion.promote`.
        """
        chosen = self.latest() if version is None else self.version(version)
        return chosen.promote(target, **how)


class ModelVersion:
    """One version of a registered model. A `target` is a stage of the project, else an alias."""

    def __init__(self, model: Model, number: int) -> None:
        self.model, self.number = model, number

    def __repr__(self) -> str:
        return f"<slipway.ModelVersion {self.model.name} {self.number}>"

    def details(self) -> VersionDetail:
        """Return all that is known of it."""
        with self._client_and_project() as (client, project):
            return client.models.version(self.model.name, self.number, project=project)

    def evaluate(self, metrics: Mapping[str, float], *, dataset: str) -> Sequence[EvaluationOut]:
        """Record figures on a dataset version such as `digits:3`.

        Gates count them only when a job of Slipway calls this.
        """
        with self._client_and_project() as (client, project):
            return [
                client.models.evaluate(
                    self.model.name,
                    self.number,
                    project=project,
                    metric=metric,
                    dataset=dataset,
                    value=float(value),
                )
                for metric, value in metrics.items()
            ]

    def set_batching(self, mode: str | None) -> VersionDetail:
        """Set batching to `rows`, `requests` or `off`. None leaves it to the golden rows.

        Endpoints follow with the next promotion.
        """
        with self._client_and_project() as (client, project):
            return client.models.set_batching(
                self.model.name, self.number, project=project, mode=mode
            )

    def plan(self, target: str) -> PlanOut:
        """Return the changes of a promotion and the state of its gates."""
        with self._client_and_project() as (client, project):
            where = target_of(client, project, target)
            return client.models.plan(self.model.name, self.number, project=project, **where)

    def promote(
        self,
        target: str,
        *,
        override_reason: str | None = None,
        archive_replaced: bool | None = None,
    ) -> MoveOut:
        """Promote the version, or raise Conflict, with the next step, when a gate is closed.

        The version that is in the stage moves to the last one, unless `archive_replaced` is False.
        """
        with self._client_and_project() as (client, project):
            where = target_of(client, project, target)
            return client.models.promote(
                self.model.name,
                self.number,
                project=project,
                stage=where.get("stage"),
                alias=where.get("alias"),
                override_reason=override_reason,
                archive_replaced=archive_replaced,
            )

    def request_approval(self, target: str, *, note: str | None = None) -> RequestOut:
        """Request the approval of a promotion by a maintainer."""
        with self._client_and_project() as (client, project):
            where = target_of(client, project, target)
            return client.models.request_approval(
                self.model.name, self.number, project=project, note=note, **where
            )

    def predict(
        self,
        data: str,
        *,
        output: str,
        table: str | None = None,
        keep: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        on_error: str | None = None,
        wait: bool = True,
        **options: object,
    ) -> BatchPredictionOut:
        """Predict a dataset (`sales:3`) by a job, which makes a version of the dataset `output`.

        With `wait` it returns when the job has ended. See `BatchPredictions.create` for the other
        arguments. Raises InvalidInput if the data do not fit the signature of the model, Conflict
        if the job fails.
        """
        with self._client_and_project() as (client, project):
            started = client.batch_predictions.create(
                self.model.name,
                version=self.number,
                project=project,
                data=data,
                output=output,
                table=table,
                keep=keep,
                columns=columns,
                on_error=on_error,
                **options,
            )
            if not wait:
                return started
            ended = client.batch_predictions.wait(started.id, project=project)
        if ended.output_version is None:
            raise Conflict(
                f"The batch prediction {ended.id} has {ended.state}: {ended.explanation}",
                code="prediction_failed",
                next_step=ended.next_step or f"Read its log: slipway job logs {ended.id}.",
            )
        return ended

    @contextmanager
    def _client_and_project(self) -> Iterator[tuple[Client, str]]:
        with _client_context(self.model._client) as client:  # noqa: SLF001  (a class of this module)
            yield client, _project(client, self.model._project_name)  # noqa: SLF001


def target_of(client: Client, project: str, name: str) -> dict[str, str]:
    """Return what a name means: a stage of the project, whatever its capitals, or an alias."""
    for stage in client.models.rules(project=project).stages:
        if stage.lower() == name.lower():
            return {"stage": stage}
    return {"alias": name}


@contextmanager
def _client_context(client: Client | None) -> Iterator[Client]:
    if client is not None:
        yield client
        return
    with Client() as made:
        yield made


def _project(client: Client, given: str | None) -> str:
    slug = given or default_project(client.url)
    if slug is None:
        raise InvalidInput(
            "No project is named and none is in use.",
            field="project",
            next_step='Pass project="…", or choose one with `slipway project use PROJECT`.',
        )
    return slug
