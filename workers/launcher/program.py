"""Runs a user's script so that it cannot tell the difference from `python script.py`.

All additions are visible only from outside: a signal that writes the stack of every thread to the
log, a report to the shim of the exception that ended the script, and output flushed at the end of
each line.
"""

import builtins
import faulthandler
import importlib
import importlib.machinery
import json
import os
import runpy
import signal
import sys
import time
import types
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from workers.launcher.platform_programs import MODULE_OF_COMMAND
from workers.launcher.task_socket import VARIABLE, Failure, report_failure

STACK_SIGNAL: Final = signal.SIGRTMIN + 11
_INTERPRETERS: Final = ("python", "python3")
_EXTERNAL_LAUNCHERS: Final = frozenset(
    {
        *("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun", "composer"),
        *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"),
    }
)
# Code for `python -c`. Its arguments: the root of our code, the program, the user's arguments.
_BOOT: Final = (
    "import sys; sys.path[: sys.path[:1] == ['']] = [sys.argv[1]]; "
    "from workers.launcher.program import main; main()"
)


@dataclass(frozen=True)
class Program:
    """Program of a rank. `script` and `module` run in place, a `command` replaces the process.

    `own` is a module of the platform, which can import the platform's modules. A `framework` forms
    a cluster of the ranks first, of nodes with `cpus` and `memory_bytes` of the task.
    """

    kind: str
    target: str
    arguments: tuple[str, ...]
    python: str
    root: str
    sdk_dir: str | None = None
    framework: str = ""
    cpus: int = 1
    memory_bytes: int = 0

    @property
    def in_place(self) -> bool:
        """True if our code stays in the process: stack dumps, exception reports, warm starts."""
        return self.kind != "command"

    @property
    def additions(self) -> str:
        """Folder of our MLflow plug-ins, see `in_jobs`."""
        return f"{self.root}/workers/launcher/in_jobs"

    @property
    def brings_own_launcher(self) -> bool:
        """True if the program starts ranks itself and must not get the variables of a rank."""
        name = self.target if self.kind == "module" else Path(self.target).name
        return self.kind != "script" and name in _EXTERNAL_LAUNCHERS

    def command_line(self) -> list[str]:
        """Return the command line that runs this program in a new process."""
        if self.kind == "command":
            return [self.target, *self.arguments]
        return [self.python, "-c", _BOOT, self.root, json.dumps(asdict(self)), *self.arguments]


def plan(
    argv: Sequence[str], *, python: str, root: str, work_dir: str, sdk_dir: str | None
) -> Program:
    """Decide how to run `argv`. Interpreter options, and what is no Python, run as they are."""
    program, *arguments = argv
    if program in MODULE_OF_COMMAND:
        module = MODULE_OF_COMMAND[program]
        return Program("own", module, tuple(arguments), python, root, sdk_dir)
    interpreted = program in _INTERPRETERS
    if interpreted and arguments:
        target, *rest = arguments
        if target == "-m" and rest and not rest[0].startswith("-"):
            return Program("module", rest[0], tuple(rest[1:]), python, root, sdk_dir)
        if not target.startswith("-") and not (Path(work_dir) / target).is_dir():
            return Program("script", target, tuple(rest), python, root, sdk_dir)
    name = python if interpreted else _find(program, python, work_dir)
    return Program("command", name, tuple(arguments), python, root)


def _find(program: str, python: str, work_dir: str) -> str:
    """Return the path of a program: in the working folder, beside Python, or on the path."""
    if "/" in program:
        return str(Path(work_dir) / program)
    places = (Path(python).parent, Path("/usr/local/bin"), Path("/usr/bin"), Path("/bin"))
    for place in places:
        if os.access(place / program, os.X_OK):
            return str(place / program)
    return program


def register_stack_signal() -> None:
    """Let STACK_SIGNAL write the stack of every thread to the log, whatever they are doing."""
    # A copy of the descriptor, because a script may close or redirect its own standard error.
    log = os.dup(2)
    faulthandler.register(STACK_SIGNAL, file=log, all_threads=True, chain=False)


def become(program: Program) -> None:
    """Run the program in this process. Afterwards the interpreter exits normally.

    Raises the exceptions that end the program: SystemExit, KeyboardInterrupt.
    """
    if program.framework:
        _form_cluster(program)
    if program.kind != "own":
        _remove_launcher_modules(program.root)
        sys.path.append(program.additions)
    elif program.root not in sys.path:
        sys.path.insert(0, program.root)
    if program.sdk_dir is not None and program.sdk_dir not in sys.path:
        sys.path.append(program.sdk_dir)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.orig_argv = [program.python, *_as_typed(program)]
    main_module = types.ModuleType("__main__")
    main_module.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main_module
    if "__mp_main__" in sys.modules:  # the alias that children of spawn use
        sys.modules["__mp_main__"] = main_module
    if program.kind == "own":
        sys.argv = ["-m", *program.arguments]
        _guarded(lambda: _run_module(program.target))
    elif program.kind == "module":
        _lead_path(os.getcwd())  # noqa: PTH109 - a string, like `python -m`
        sys.argv = ["-m", *program.arguments]
        _guarded(lambda: _run_module(program.target))
    else:
        sys.argv = [program.target, *program.arguments]
        _guarded(lambda: _run_script(program, main_module))


def _form_cluster(program: Program) -> None:
    """Return on rank 0 once the others have joined. They exit when it has ended."""
    if program.root not in sys.path:
        sys.path.insert(0, program.root)
    # Loaded only by jobs that form a cluster: it takes longer than everything else here.
    formation = importlib.import_module("workers.launcher.clusters.formation")
    _guarded(lambda: formation.join_cluster(program))


def _as_typed(program: Program) -> list[str]:
    flag = ["-m"] if program.kind != "script" else []
    return [*flag, program.target, *program.arguments]


def _remove_launcher_modules(root: str) -> None:
    """Leave neither our modules nor our place on the path: the user may have a `workers` too."""
    sys.path[:] = [entry for entry in sys.path if entry != root]
    for name in [name for name in sys.modules if name.partition(".")[0] == "workers"]:
        del sys.modules[name]


def _lead_path(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)


def _run_module(name: str) -> None:
    # The function that `python -m` calls. run_module would hide the program's own __main__.
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # noqa: SLF001


def _run_script(program: Program, main_module: types.ModuleType) -> None:
    # Joined, not resolved: `python ./a.py` calls its script /folder/./a.py as well.
    path = os.path.join(os.getcwd(), program.target)  # noqa: PTH109, PTH118
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        sys.stderr.write(
            f"{program.python}: can't open file {path!r}: "
            f"[Errno {error.errno}] {os.strerror(error.errno or 0)}\n"
        )
        sys.exit(2)
    _lead_path(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main_module.__dict__.update(__file__=path, __loader__=loader, __cached__=None)
    code = compile(source, path, "exec", dont_inherit=True)
    exec(code, main_module.__dict__)  # noqa: S102 - runs the user's code by design


def _guarded(run: Any) -> None:
    """Run, and treat an exception as the interpreter would: hook, then status 1."""
    try:
        run()
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            _report_failure(error)
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - the last handler before the interpreter's own
        _report_failure(error)
        error.__traceback__ = _strip_launcher_frames(error.__traceback__)
        sys.last_type, sys.last_value = type(error), error
        sys.last_traceback = error.__traceback__
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except Exception:  # noqa: BLE001 - a broken hook must not hide the error
            sys.__excepthook__(*sys.exc_info())
            sys.__excepthook__(type(error), error, error.__traceback__)
        status = 1
    else:
        return
    sys.exit(status)


def _strip_launcher_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<string>"):
        trace = trace.tb_next
    return trace


def _report_failure(error: BaseException) -> None:
    door = os.environ.get(VARIABLE)
    if door is None:
        return
    kind = type(error)
    name = kind.__qualname__
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ may do anything
        message = ""
    number = error.errno if isinstance(error, OSError) else None
    at_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    rank = os.environ.get("RANK", "0")
    failure = Failure(int(rank) if rank.isdigit() else 0, name, message, at_ns, number)
    report_failure(door, failure)


def main() -> None:
    """Entry of a rank that starts cold: `python -c BOOT ROOT PROGRAM arguments…`."""
    document = json.loads(sys.argv[2])
    register_stack_signal()
    become(Program(**{**document, "arguments": tuple(document["arguments"])}))
