"""Serves models of the registry: resolves versions and reads their files and golden rows."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from portal.accounts.models import Project
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.endpoints.adapters.job_archives import with_job_archives
from portal.endpoints.environments import environment_for
from portal.endpoints.ports import ServedFile, ServedModel
from portal.registry.adapters.artifacts import artifact_files
from portal.registry.artifact_uri import folder_of
from portal.registry.batching import note_batching, statement_of
from portal.registry.catalog import ModelFacts, VersionFacts, find_model, find_version
from portal.registry.model_inspection import examine
from portal.registry.models import VersionRecord
from portal.registry.ports import FilesUnreadable
from portal.registry.promotion_gates import Target
from portal.registry.records import ensure_line, ensure_record, rules_of
from portal.registry.services.evaluations import golden_of, read_golden
from portal.registry.services.promotions import version_at_target
from portal.registry.tasks import hash_version
from slipway.schemas.registry import GoldenIn, TargetKind
from slipway.schemas.serving import BatchingMode, BatchingReport, Datatype, ModelFormat
from slipway.schemas.signatures import ElementType

_MAX_REQUIREMENTS_BYTES = 256 * 1024
# Packages that load the model, in case its own requirements lack them.
_NEEDS = {
    ModelFormat.MLFLOW: "",
    ModelFormat.TORCHSCRIPT: "torch",
    ModelFormat.TORCH_EXPORT: "torch",
    ModelFormat.ONNX: "onnxruntime",
}
_DATATYPES = {
    ElementType.BOOL: Datatype.BOOL,
    ElementType.UINT8: Datatype.UINT8,
    ElementType.UINT16: Datatype.UINT16,
    ElementType.UINT32: Datatype.UINT32,
    ElementType.UINT64: Datatype.UINT64,
    ElementType.INT8: Datatype.INT8,
    ElementType.INT16: Datatype.INT16,
    ElementType.INT32: Datatype.INT32,
    ElementType.INT64: Datatype.INT64,
    ElementType.FLOAT16: Datatype.FP16,
    ElementType.FLOAT32: Datatype.FP32,
    ElementType.FLOAT64: Datatype.FP64,
    ElementType.STRING: Datatype.BYTES,
}
_UNREADABLE = (
    "Try again. If that does not help, ask an administrator to check the artifact store, or log "
    "the model again."
)
_PYTHON = re.compile(r"^python:\s*[\"']?(\d+\.\d+)", re.MULTILINE)


class RegistryModels:
    """The versions of a project's registered models. Their files are read, never loaded."""

    def find(self, *, project_id: str, model: str, version: str | None) -> ServedModel:
        """Return a version by its number, an alias or a stage, or the latest version for None."""
        project = Project.objects.get(pk=project_id)
        details, value = _version(project, model, version)
        record = examine(ensure_record(project, details, value), value, later=hash_version)
        if record.fault:
            raise Conflict(
                record.fault,
                code="model_unreadable",
                next_step="Log the model again and register that version.",
            )
        if record.hashed_at is None:
            raise Conflict(
                f"The files of {model} version {value.number} are still being checked.",
                code="model_not_checked",
                next_step="Try again in a minute. Large models take longer.",
            )
        format_ = ModelFormat(record.format)
        if format_ is ModelFormat.MLFLOW and "python_function" not in record.flavors:
            raise Conflict(
                f"{model} version {value.number} cannot serve predictions: it has no "
                "python_function flavour.",
                code="model_not_servable",
                next_step="Log it with an MLflow flavour, such as mlflow.sklearn or mlflow.pyfunc.",
            )
        folder = folder_of(project_id, value.location)
        requirements, python = _environment(record, folder, _NEEDS[format_], project, value.run_id)
        return ServedModel(
            model=model,
            version=str(value.number),
            format=format_,
            entry=record.entry or None,
            signature=_tensors(record.signature) if record.entry else None,
            files=tuple(
                ServedFile(path=path, sha256=sha256, size_bytes=size, place=f"{folder}/{path}")
                for path, size, sha256 in record.files
            ),
            golden=_golden(record),
            requirements=requirements,
            python=python,
            example=record.example,
            batching=stated.mode.value if (stated := statement_of(record)) else None,
        )

    def read(self, *, project_id: str, file: ServedFile) -> Iterator[bytes]:
        """Yield the bytes of a file of a version of that project."""
        if not file.place.startswith(f"workspaces/{project_id}/"):
            raise NotFound  # files of all projects are there: a revision may only read its own
        folder = file.place.removesuffix(f"/{file.path}")
        try:
            yield from artifact_files().pieces(folder, file.path)
        except FilesUnreadable as error:
            raise Conflict(
                f"{file.path} of the model cannot be read: {error}.",
                code="model_unreadable",
                next_step=_UNREADABLE,
            ) from error

    def note_batching(
        self, *, project_id: str, served: ServedModel, report: BatchingReport
    ) -> None:
        """Record how a ready replica of a version treats requests that wait together."""
        with suppress(NotFound):  # the version may have been deleted concurrently
            note_batching(
                project=Project.objects.get(pk=project_id),
                model=served.model,
                number=int(served.version),
                stated=BatchingMode(served.batching) if served.batching else None,
                report=report,
            )


def _version(
    project: Project, model: str, requested: str | None
) -> tuple[ModelFacts, VersionFacts]:
    try:
        details = find_model(project.pk, model)
    except NotFound as error:
        raise InvalidInput(
            f"This project has no registered model {model}.",
            code="no_such_model",
            field="model",
            next_step="Register a version first, with `slipway.register` or on the model's page.",
        ) from error
    number = _number(project, details, requested)
    try:
        if number is not None:
            return details, find_version(project.pk, model, number)
    except NotFound:
        pass
    message = "version" if requested is None else f"version, alias or stage {requested}"
    raise InvalidInput(
        f"{model} has no {message}.",
        code="no_such_version",
        field="version",
        next_step="Give a version number, an alias, or a stage that a version is in.",
    )


def _number(project: Project, details: ModelFacts, requested: str | None) -> int | None:
    if requested is None:
        return details.latest
    if requested.isascii() and requested.isdecimal():
        return int(requested) if len(requested) < 10 else None
    alias = details.aliases.get(requested.removeprefix("@"))
    if alias is not None:
        return alias
    for stage in rules_of(project).stages:
        if stage.lower() == requested.lower():
            line = ensure_line(project, details)
            there = version_at_target(details, line, Target(TargetKind.STAGE, stage))
            return there.number if there else None
    return None


def _tensors(signature: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the signature of a single-file model, or None if a shape is unknown.

    In that case the replica reads the signature of an ONNX model from its file. A torch model
    accepts any input.
    """
    if signature is None:
        return None
    sides = {side: signature[side] for side in ("inputs", "outputs")}
    if any(tensor["shape"] is None for side in sides.values() for tensor in side):
        return None
    return {
        "kind": "tensors",
        **{side: [_tensor(tensor) for tensor in tensors] for side, tensors in sides.items()},
    }


def _tensor(described: dict[str, Any]) -> dict[str, Any]:
    datatype = _DATATYPES[ElementType(described["type"])]
    return {"name": described["name"], "datatype": datatype.value, "shape": described["shape"]}


def _environment(
    record: VersionRecord, folder: str, needs: str, project: Project, run_id: str
) -> tuple[str, str]:
    paths = {path for path, _, _ in record.files}
    try:
        requirements = _text(folder, "requirements.txt") if "requirements.txt" in paths else ""
        python = _text(folder, "python_env.yaml") if "python_env.yaml" in paths else ""
    except FilesUnreadable as error:
        raise Conflict(
            f"The requirements of the model cannot be read: {error}.",
            code="model_unreadable",
            next_step=_UNREADABLE,
        ) from error
    match = _PYTHON.search(python)
    requirements = with_job_archives(project, run_id, requirements)
    return environment_for(f"{requirements}\n{needs}", match[1] if match else "")


def _text(folder: str, path: str) -> str:
    content = artifact_files().head(folder, path, limit_bytes=_MAX_REQUIREMENTS_BYTES)
    return content.decode("utf-8", errors="replace")


def _golden(record: VersionRecord) -> tuple[dict[str, Any], ...]:
    if golden_of(record) is None:
        return ()
    value = read_golden(record)
    return (
        {
            "request": _request(value, record.signature),
            "predictions": value.outputs,
            "rtol": value.relative_tolerance,
            "atol": value.absolute_tolerance,
        },
    )


def _request(golden: GoldenIn, signature: dict[str, Any] | None) -> dict[str, Any]:
    """Return recorded rows as a body of `/invocations`."""
    rows = golden.inputs
    if all(isinstance(row, dict) for row in rows):
        return {"dataframe_records": rows}
    columns = _column_names(signature)
    if columns and all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        return {"dataframe_split": {"columns": columns, "data": rows}}
    return {"inputs": rows}


def _column_names(signature: dict[str, Any] | None) -> Sequence[str]:
    """Return the names of a table's columns, or nothing for tensors, which have a shape."""
    inputs = signature["inputs"] if signature else []
    if not inputs or any(item["shape"] is not None or not item["name"] for item in inputs):
        return ()
    return [item["name"] for item in inputs]
