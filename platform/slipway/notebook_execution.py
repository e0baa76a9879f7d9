"""Running a notebook top to bottom in a clean kernel, by papermill.

Papermill runs each cell through nbclient, writes the output notebook as it goes, and puts values in
place of those of the cell tagged `parameters`. Kernels speak over sockets in a private folder,
where nobody else on the machine can listen.
"""

import ast
import copy
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import zmq
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from papermill.engines import NBClientEngine, NotebookExecutionManager
from papermill.parameterize import parameterize_notebook

from slipway.notebook_check import CheckResult, report_on

# Maximum path length of a socket, less the suffix that Jupyter adds.
_LONGEST_SOCKET_PATH = 85
_KERNEL = "python3"
# nbclient waits 4 s for the rest of a cell's output: too short on a busy machine.
_OUTPUT_TIMEOUT_S = 120
OnCell = Callable[[int, int], None]


class NotebookUnreadable(ValueError):
    """A file is not a Python notebook. The message is meant to follow its name."""


@dataclass(frozen=True)
class ExecutionResult:
    """A notebook that has run, perhaps not to its end. `error` says which cell failed and how."""

    notebook: Any
    duration_s: float
    error: str = ""


def read_notebook(path: Path) -> Any:
    """Return the notebook in a file, or raise NotebookUnreadable or OSError."""
    try:
        notebook = nbformat.reads(path.read_text("utf-8"), as_version=4)  # type: ignore[no-untyped-call]
        if not isinstance(notebook.get("cells"), list):
            raise NotebookUnreadable("is not a notebook")
        nbformat.validate(notebook)
    except (
        nbformat.ValidationError,
        ValueError,
        AttributeError,
        KeyError,
        TypeError,
        RecursionError,
    ):
        raise NotebookUnreadable("is not a notebook") from None
    language = str(notebook.metadata.get("kernelspec", {}).get("language", "python")).lower()
    if language != "python":
        raise NotebookUnreadable(f"is a notebook of {language[:40]}; only Python can be run")
    return notebook


def run_notebook(
    notebook: Any,
    *,
    folder: Path,
    output: Path | None = None,
    params: Mapping[str, object] | None = None,
    on_cell: OnCell | None = None,
    cell_timeout_s: int | None = None,
    shows_output: bool = True,
) -> ExecutionResult:
    """Run a notebook in `folder`. The given one is not changed.

    `output` is written after each cell. `on_cell` is called with the number of each cell as it
    begins, and the number of cells. Output of cells goes to standard output while `shows_output`.
    """
    executed = copy.deepcopy(notebook)
    executed.metadata.setdefault("papermill", {})
    for cell in executed.cells:
        cell.metadata.setdefault("tags", [])
    logging.getLogger("papermill").setLevel(logging.ERROR)
    if params:
        executed = parameterize_notebook(
            executed, dict(params), kernel_name=_KERNEL, language="python"
        )
        executed.metadata["papermill"].setdefault("parameters", {})
    began = time.monotonic()
    with _kernels() as manager:
        ran = _Engine.execute_notebook(
            executed,
            _KERNEL,
            output_path=str(output) if output else None,
            progress_bar=False,
            on_cell=on_cell,
            km=manager,
            resources={"metadata": {"path": str(folder)}},
            execution_timeout=cell_timeout_s,
            iopub_timeout=_OUTPUT_TIMEOUT_S,
            stdout_file=sys.stdout if shows_output else None,
            stderr_file=sys.stderr if shows_output else None,
        )
    return ExecutionResult(ran, time.monotonic() - began, _error_of(ran))


def verify_notebook(
    notebook: Any,
    *,
    folder: Path,
    output: Path | None = None,
    on_cell: OnCell | None = None,
    cell_timeout_s: int | None = None,
    shows_output: bool = False,
) -> tuple[CheckResult, ExecutionResult]:
    """Run a notebook as it is in a clean kernel and return the differences."""
    ran = run_notebook(
        notebook,
        folder=folder,
        output=output,
        on_cell=on_cell,
        cell_timeout_s=cell_timeout_s,
        shows_output=shows_output,
    )
    return report_on(notebook, ran.notebook, duration_s=ran.duration_s), ran


def value_of(text: str) -> object:
    """Return the Python value a parameter means: `0.1` a number, `[1, 2]` a list, else text."""
    if text in ("true", "false"):
        return text == "true"
    try:
        literal = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    plain = (str, int, float, list, dict, tuple, type(None))
    return literal if isinstance(literal, plain) else text


class _Engine(NBClientEngine):  # type: ignore[misc]
    """Papermill's own engine, which also reports the current cell."""

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man: NotebookExecutionManager,
        kernel_name: str,
        on_cell: OnCell | None = None,
        **kwargs: Any,
    ) -> None:
        """Run the cells. See papermill."""
        begin, count = nb_man.cell_start, len(nb_man.nb.cells)

        def cell_start(cell: Any, cell_index: int = 0, **more: Any) -> None:
            begin(cell, cell_index, **more)
            if on_cell is not None:
                on_cell(cell_index + 1, count)

        nb_man.cell_start = cell_start
        super().execute_managed_notebook(nb_man, kernel_name, **kwargs)


@contextmanager
def _kernels() -> Iterator[AsyncKernelManager]:
    """Return what starts the kernel: this interpreter, whatever kernel the notebook names."""
    room = Path(tempfile.mkdtemp(prefix="nb-"))
    specs = KernelSpecManager(allowed_kernelspecs={_KERNEL}, kernel_dirs=[])
    manager = AsyncKernelManager(kernel_name=_KERNEL, kernel_spec_manager=specs)
    manager.connection_file = str(room / "k.json")
    if len(str(room)) < _LONGEST_SOCKET_PATH:
        manager.transport = "ipc"
        manager.ip = str(room / "k")
    if hasattr(manager, "transport_encryption") and zmq.has("curve"):
        # Otherwise any process that can connect to the socket could read the output of cells.
        manager.transport_encryption = "auto"
    # A kernel is a separate process: pass on the entries of sys.path outside this environment.
    before = os.environ.get("PYTHONPATH")
    ours = [
        entry for entry in sys.path if entry and not entry.startswith((sys.prefix, sys.base_prefix))
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys([*(before.split(os.pathsep) if before else ()), *ours])
    )
    try:
        yield manager
    finally:
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before
        shutil.rmtree(room, ignore_errors=True)


def _error_of(notebook: Any) -> str:
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type != "code" or not cell.metadata.get("papermill", {}).get("exception"):
            continue
        for output in cell.outputs:
            if output.output_type == "error":
                return f"cell {number}: {output.ename}: {output.evalue}"
        return f"cell {number} did not end well"
    return ""
