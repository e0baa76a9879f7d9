"""Registered models: versions, stages, gates, approvals."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from slipway.connection import Connection
from slipway.model_files import model_files
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.accounts import ProjectOut
from slipway.schemas.base import PageOf
from slipway.schemas.batching import BatchingIn
from slipway.schemas.registry import (
    DecisionIn,
    EvaluationIn,
    EvaluationOut,
    GoldenIn,
    LineageOut,
    ModelChange,
    ModelIn,
    ModelOut,
    ModelVersionOut,
    MoveOut,
    PlanOut,
    PromoteIn,
    RequestIn,
    RequestOut,
    RulesIn,
    RulesOut,
    TargetIn,
    Verdict,
    VersionDetail,
    VersionIn,
)
from slipway.schemas.serving import BatchingMode, ModelFormat
from slipway.schemas.signatures import SignatureIn

_ARTIFACTS = ("api", "2.0", "mlflow-artifacts", "artifacts")


class Models:
    """The registered models of a project. `model` is the name of one, `version` a number.

    A target is exactly one of `stage` and `alias`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str, search: str | None = None) -> Pages[ModelOut]:
        """List models by name."""
        segments = ("projects", project, "models")
        return Pages(self._connection, segments, PageOf[ModelOut], {"q": search})

    def get(self, model: str, *, project: str) -> ModelOut:
        """Return one model."""
        return self._connection.fetch(ModelOut, "GET", *_path(project, model))

    def create(
        self,
        model: str,
        *,
        project: str,
        description: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> ModelOut:
        """Create a model without a version."""
        body = build(ModelIn, name=model, description=description, tags=tags and dict(tags))
        return self._connection.fetch(ModelOut, "POST", "projects", project, "models", body=body)

    def edit(
        self,
        model: str,
        *,
        project: str,
        card: str | None = None,
        description: str | None = None,
        tags: Mapping[str, str | None] | None = None,
    ) -> ModelOut:
        """Change the card (markdown), the description and tags. A tag of None is removed."""
        body = build(ModelChange, card=card, description=description, tags=tags and dict(tags))
        return self._connection.fetch(ModelOut, "PATCH", *_path(project, model), body=body)

    def versions(self, model: str, *, project: str) -> Pages[ModelVersionOut]:
        """List versions, newest first."""
        segments = (*_path(project, model), "versions")
        return Pages(self._connection, segments, PageOf[ModelVersionOut])

    def version(self, model: str, version: int, *, project: str) -> VersionDetail:
        """Return one version with what its files say."""
        return self._connection.fetch(VersionDetail, "GET", *_path(project, model, version))

    def upload(
        self,
        model: str,
        source: str | PathLike[str],
        *,
        project: str,
        progress: Callable[[int], None] | None = None,
    ) -> str:
        """Upload a file, or all of a folder, as a version of a model, and return its source.

        `progress` receives the number of bytes sent.
        """
        slug = self._connection.fetch(ProjectOut, "GET", "projects", project).slug
        folder = ("models", model, secrets.token_hex(8))
        before = 0
        for file in model_files(source):
            place = (*_ARTIFACTS, *folder, *file.path.split("/"))
            shown = _after(before, progress) if progress is not None else None
            self._connection.put("mlflow", slug, *place, content=file, progress=shown)
            before += file.size_bytes
        return f"mlflow-artifacts:/{'/'.join(folder)}"

    def register(
        self,
        model: str,
        source: str,
        *,
        project: str,
        run_id: str | None = None,
        format: ModelFormat | str | None = None,  # noqa: A002  (the usual term)
        signature: SignatureIn | Mapping[str, Any] | None = None,
        batching: BatchingMode | str | None = None,
        description: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> VersionDetail:
        """Register `runs:/RUN/path`, `models:/…` or `mlflow-artifacts:/…` as the next version.

        Of a file that is no MLflow model, `format` and `signature` say what it is and takes.
        `batching` states whether requests may be merged: `rows`, `requests` or `off`.
        """
        given = signature if isinstance(signature, SignatureIn) else signature and dict(signature)
        body = build(
            VersionIn,
            source=source,
            run_id=run_id,
            format=format,
            signature=given,
            batching=batching,
            description=description,
            tags=tags and dict(tags),
        )
        segments = (*_path(project, model), "versions")
        return self._connection.fetch(VersionDetail, "POST", *segments, body=body)

    def set_batching(
        self, model: str, version: int, *, project: str, mode: BatchingMode | str | None
    ) -> VersionDetail:
        """Set how requests that wait together are predicted. None leaves it to the golden rows."""
        body = BatchingIn(mode=None if mode is None else BatchingMode(mode))
        segments = (*_path(project, model, version), "batching")
        return self._connection.fetch(VersionDetail, "PUT", *segments, body=body)

    def record_golden(
        self,
        model: str,
        version: int,
        *,
        project: str,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        absolute_tolerance: float | None = None,
        relative_tolerance: float | None = None,
    ) -> VersionDetail:
        """Record rows that went in, and what came out for each, to be equal again later."""
        body = build(
            GoldenIn,
            inputs=[*inputs],
            outputs=[*outputs],
            absolute_tolerance=absolute_tolerance,
            relative_tolerance=relative_tolerance,
        )
        segments = (*_path(project, model, version), "golden")
        return self._connection.fetch(VersionDetail, "PUT", *segments, body=body)

    def evaluate(
        self,
        model: str,
        version: int,
        *,
        project: str,
        metric: str,
        dataset: str,
        value: float | None = None,
        run_id: str | None = None,
    ) -> EvaluationOut:
        """Record a metric on a dataset version. Gates count metrics that a job reports itself."""
        finite = value is None or abs(value) < float("inf")
        body = build(
            EvaluationIn,
            metric=metric,
            dataset=dataset,
            value=value if finite else None,
            not_finite=None if finite else str(value),
            run_id=run_id,
        )
        segments = (*_path(project, model, version), "evaluations")
        return self._connection.fetch(EvaluationOut, "POST", *segments, body=body)

    def plan(
        self,
        model: str,
        version: int,
        *,
        project: str,
        stage: str | None = None,
        alias: str | None = None,
    ) -> PlanOut:
        """Return the changes of a promotion and the state of its gates. Nothing is changed."""
        target = build(TargetIn, stage=stage, alias=alias)
        query = {"stage": target.stage, "alias": target.alias}
        segments = (*_path(project, model, version), "plan")
        return self._connection.fetch(PlanOut, "GET", *segments, query=query)

    def promote(
        self,
        model: str,
        version: int,
        *,
        project: str,
        stage: str | None = None,
        alias: str | None = None,
        sequence: int | None = None,
        override_reason: str | None = None,
        archive_replaced: bool | None = None,
    ) -> MoveOut:
        """Move a version to a stage, or an alias to it, or raise Conflict for a closed gate.

        `sequence` is that of the plan. A concurrent promotion raises Conflict too. The version that
        is in the stage moves to the last one, unless `archive_replaced` is False; of an alias, only
        if it is True.
        """
        body = build(
            PromoteIn,
            stage=stage,
            alias=alias,
            sequence=sequence,
            override_reason=override_reason,
            archive_replaced=archive_replaced,
        )
        segments = (*_path(project, model, version), "promote")
        return self._connection.fetch(MoveOut, "POST", *segments, body=body)

    def request_approval(
        self,
        model: str,
        version: int,
        *,
        project: str,
        stage: str | None = None,
        alias: str | None = None,
        note: str | None = None,
    ) -> RequestOut:
        """Request the approval of a promotion by a maintainer."""
        body = build(RequestIn, stage=stage, alias=alias, note=note)
        segments = (*_path(project, model, version), "requests")
        return self._connection.fetch(RequestOut, "POST", *segments, body=body)

    def requests(self, model: str, version: int, *, project: str) -> Sequence[RequestOut]:
        """Return the promotion requests of a version, newest first."""
        return self._connection.fetch_list(RequestOut, *_path(project, model, version), "requests")

    def decide(
        self,
        model: str,
        request: str,
        *,
        project: str,
        verdict: Verdict | str,
        note: str | None = None,
    ) -> RequestOut:
        """Approve or reject a request as a maintainer, or withdraw one's own."""
        body = build(DecisionIn, verdict=verdict, note=note)
        segments = (*_path(project, model), "requests", request, "decision")
        return self._connection.fetch(RequestOut, "POST", *segments, body=body)

    def remove_alias(self, model: str, alias: str, *, project: str) -> MoveOut:
        """Remove an alias."""
        segments = (*_path(project, model), "aliases", alias)
        return self._connection.fetch(MoveOut, "DELETE", *segments)

    def history(self, model: str, *, project: str) -> Pages[MoveOut]:
        """List every move of a model, newest first."""
        return Pages(self._connection, (*_path(project, model), "history"), PageOf[MoveOut])

    def lineage(self, model: str, version: int, *, project: str) -> LineageOut:
        """Return what a version came of, and what came of it."""
        return self._connection.fetch(LineageOut, "GET", *_path(project, model, version), "lineage")

    def rules(self, *, project: str) -> RulesOut:
        """Return the stages of a project and its gates."""
        return self._connection.fetch(RulesOut, "GET", "projects", project, "registry-rules")

    def put_rules(self, rules: RulesIn, *, project: str) -> RulesOut:
        """Replace the stages and gates, as a maintainer."""
        segments = ("projects", project, "registry-rules")
        return self._connection.fetch(RulesOut, "PUT", *segments, body=rules)


def _after(before: int, progress: Callable[[int], None]) -> Callable[[int], None]:
    return lambda sent_bytes: progress(before + sent_bytes)


def _path(project: str, model: str, version: int | None = None) -> tuple[str, ...]:
    place = ("projects", project, "models", model)
    return place if version is None else (*place, "versions", str(version))
