"""Inputs and outputs of the step of a pipeline that this job is. Standard library only.

Without Slipway, or in a job that is no step, inputs come from nowhere and outputs are printed.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from slipway import job
from slipway.errors import InvalidInput, SlipwayError
from slipway.step_values import FILES, parsed
from slipway.workload_client import ApiAddress, api_address_from

_TRIED_FOR_S = 120.0
# Folder for outputs that the step wrote outside of its working folder, where nothing is kept.
_OUTPUTS = "step-outputs"
_JSON = "application/json"
# Working folder of a job whose code runs elsewhere, as the cells of a notebook do.
WORK_DIR_VARIABLE = "SLIPWAY_WORK_DIR"


def step_input(name: str, hint: Any = None) -> Any:
    """Return an input of this step. A file is downloaded, and the result is its path.

    `hint` is the type, such as float, where the text of the value does not say.
    """
    params = job.current().params
    if name not in params:
        raise InvalidInput(
            f"This job has no input {name}.",
            field=name,
            next_step=f"Inputs: {', '.join(params)}." if params else "Run it as a step.",
        )
    return local_value(parsed(params[name], hint))


def step_output(name: str, value: object) -> None:
    """Report an output of this step: a JSON value, or the path of a file or folder it has written.

    Raises InvalidInput where the pipeline does not declare it, or with another type.
    """
    report_outputs({name: value})


def report_outputs(outputs: dict[str, Any]) -> None:
    """Report several outputs at once. Of several ranks the first one does."""
    if not outputs or not job.current().is_first:
        return
    plain = {name: _plain(name, value) for name, value in outputs.items()}
    try:
        body = json.dumps({"outputs": plain}, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"The outputs of this step are no JSON: {error}.",
            field="outputs",
            next_step="Return numbers, texts, lists and dicts of them, or the path of a file.",
        ) from None
    api = api_address_from(os.environ)
    if api is None:
        print(f"[slipway] outputs: {json.dumps(plain)}")  # noqa: T201
        return
    where = f"pipelines/jobs/{quote(api.workload, safe='')}/outputs"
    answer = api.send("PUT", where, body, kind=_JSON, tried_for_s=_TRIED_FOR_S)
    if answer.error.startswith("404"):
        print(f"[slipway] no step of a pipeline; outputs: {json.dumps(plain)}")  # noqa: T201
    elif answer.error:
        raise InvalidInput(
            f"The outputs of this step were refused: {answer.error}",
            field="outputs",
            next_step="Compare them with the outputs that the pipeline declares.",
        )


def local_value(value: Any) -> Any:
    """Return a value with files downloaded and replaced by their paths, in lists too."""
    if isinstance(value, str) and value.startswith(FILES):
        return downloaded(value)
    if isinstance(value, list):
        return [local_value(item) for item in value]
    return value


def downloaded(uri: str) -> Path:
    """Download a file or folder that another step has kept, `runs:/RUN/path`, and return its path.

    Raises SlipwayError if it is gone.
    """
    run, _, path = uri.removeprefix(FILES).partition("/")
    api = api_address_from(os.environ)
    if api is None:
        raise SlipwayError(f"{uri} can be read only in a job.", next_step="Run it as a step.")
    target = Path(tempfile.mkdtemp(prefix="slipway-input-")) / path.rpartition("/")[2]
    if not _fetch(api, run, path, target):
        raise SlipwayError(
            f"The file {uri} does not exist any more.",
            next_step="Run the pipeline again: the step that made it is not reused then.",
        )
    return target


def _fetch(api: ApiAddress, run: str, path: str, target: Path) -> bool:
    """Download a file, or all files of a folder. Returns whether there was one."""
    place = f"runs/{quote(run, safe='')}/artifacts"
    answer = api.send(
        "GET", f"{place}/content?path={quote(path, safe='')}", None, kind="", tried_for_s=60.0
    )
    if not answer.error:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(answer.content)
        return True
    if not answer.error.startswith("404"):
        raise SlipwayError(f"{path} cannot be downloaded: {answer.error}")
    listed = api.send("GET", f"{place}?path={quote(path, safe='')}", None, kind="", tried_for_s=60)
    if listed.error:
        return False
    entries = json.loads(listed.content)
    for entry in entries:
        inner = str(entry["path"])
        _fetch(api, run, inner, target / inner.rpartition("/")[2])
    return bool(entries)


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Path):
        return _kept(name, value)
    if isinstance(value, dict):
        return {str(key): _plain(name, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    item = getattr(value, "item", None)  # a scalar of NumPy or torch
    return item() if callable(item) and not isinstance(value, str | int | float) else value


def _kept(name: str, path: Path) -> str:
    """Return the path of an output below the working folder, where the node keeps it."""
    if not path.exists():
        raise InvalidInput(
            f"The output {name} is the path {path}, where no file is.",
            field=name,
            next_step="Write the file before the step returns.",
        )
    folder, full = Path(os.environ.get(WORK_DIR_VARIABLE, "")).resolve(), path.resolve()
    if full.is_relative_to(folder):
        return full.relative_to(folder).as_posix()
    copied = folder / _OUTPUTS / name / full.name
    copied.parent.mkdir(parents=True, exist_ok=True)
    if full.is_dir():
        shutil.copytree(full, copied, dirs_exist_ok=True)
    else:
        shutil.copyfile(full, copied)
    return copied.relative_to(folder).as_posix()
