"""Running a pipeline from Python: a file and a folder of code become a run."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slipway.client import Client
from slipway.errors import InvalidInput
from slipway.pipeline_files import checked_parameters, read_pipeline
from slipway.resources.requests import build
from slipway.sanitize import visible
from slipway.schemas.pipelines import PipelineIn, PipelineRunIn, PipelineRunOut
from slipway.snapshots import DEFAULT_LIMIT_BYTES, Snapshot, take_snapshot
from slipway.training import default_or_given_project


def run_pipeline(
    source: str | Path,
    *,
    parameters: Mapping[str, Any] | None = None,
    force: bool = False,
    folder: str | Path = ".",
    include: Sequence[str] = (),
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    project: str | None = None,
    client: Client | None = None,
) -> PipelineRunOut:
    """Start a run of the pipeline in `source`: YAML, Python, or `FILE.py::NAME`.

    The code of `folder` travels as a snapshot. `force` reuses nothing of earlier runs. `project`
    and `client` default to those in use. `client.pipelines.wait` returns its end.
    """
    pipeline = read_pipeline(str(source), folder=folder)
    values = checked_parameters(pipeline, parameters or {})
    with contextlib.ExitStack() as stack:
        if client is None:
            client = stack.enter_context(Client())
        place = default_or_given_project(client, project)
        snapshot = stack.enter_context(
            take_snapshot(folder, include=include, limit_bytes=limit_bytes)
        )
        client.snapshots.upload(snapshot, project=place)
        body = run_body(pipeline, values, snapshot, force=force)
        return client.pipelines.start(body, project=place)


def run_body(
    pipeline: PipelineIn, parameters: Mapping[str, Any], snapshot: Snapshot, *, force: bool = False
) -> PipelineRunIn:
    """Return the request body that starts or plans a run, or raise InvalidInput."""
    return build(
        PipelineRunIn,
        pipeline=pipeline,
        parameters=dict(parameters),
        snapshot=snapshot.digest,
        git=snapshot.git,
        force=force,
    )


def parse_parameters(pipeline: PipelineIn, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return parameters that were written as text, with their types. Raises InvalidInput."""
    return checked_parameters(pipeline, typed_values(pipeline, texts))


def typed_values(pipeline: PipelineIn, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return values that were written as text, with the types of parameters.

    Raises InvalidInput for another type, but not for parameters that are missing or unknown.
    """
    values: dict[str, Any] = {}
    for name, text in texts.items():
        parameter = pipeline.parameters.get(name)
        kind = "any" if parameter is None else parameter.type
        if text.startswith("${"):  # a reference, which a schedule replaces by its value
            values[name] = text
            continue
        try:
            values[name] = text if kind == "string" else json.loads(text)
        except ValueError:
            if kind != "any":
                raise InvalidInput(
                    f"Parameter {visible(name)} is {visible(text)!r}, not a value of type {kind}.",
                    field=f"parameters.{name}",
                    next_step="Write it as JSON: 3, 0.1, true, '[1, 2]'.",
                ) from None
            values[name] = text
    return values
