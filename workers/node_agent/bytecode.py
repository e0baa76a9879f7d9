"""Bytecode of an environment, whose full compilation takes longer than its installation.

Nobody waits for it: an environment is ready before, and its first task compiles what it imports for
itself. Behind it, at a lower priority, the modules that tasks import first are compiled, then
the rest. Tasks cannot write into an environment, so every process would compile uncompiled modules
again. Base interpreters compile, and no code of the environment runs.
"""

from pathlib import Path
from typing import Final

from workers.launcher.platform_programs import PLATFORM_PROGRAMS

_OURS: Final = "workers."
_FIRST: Final = Path(__file__).with_name("first_modules.py")
_COMPILE: Final = """\
import compileall, sys
compileall.compile_dir(sys.argv[1], maxlevels=30, quiet=2)
"""


def first_compile_commands(base: Path, site_packages: Path) -> list[list[str]]:
    """Return command lines that compile the first imports of tasks, if they are installed.

    They may run in parallel: each compiles much that the others do not.
    """
    compiler = _FIRST.read_text("utf-8")
    return [
        [
            *(str(base), "-I", "-S", "-c", compiler, str(site_packages)),
            *(
                name
                for name in program.imports + program.imported_later
                if not name.startswith(_OURS)
            ),
        ]
        for program in PLATFORM_PROGRAMS.values()
    ]


def remaining_compile_command(base: Path, attempt: Path) -> list[str]:
    """The command line that compiles all that is not compiled yet."""
    return [str(base), "-I", "-S", "-c", _COMPILE, str(attempt / "lib")]
