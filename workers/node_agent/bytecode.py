"""The bytecode of an environment. To compile all of it takes longer than to install it.

What tasks import first is compiled by importing it, before any task has the environment; the rest
when the processors have nothing else to do. Tasks can write nothing into an environment, so what
is compiled in neither way would be compiled by every process anew.
"""

from pathlib import Path
from typing import Final

from workers.launcher.imports import LAB, SERVING, TRAINING

# The first optimizer and the first kernel of a notebook import these.
_LATER: Final = ("torch._dynamo", "ipykernel.kernelapp", "IPython", "jupyterhub.singleuser")
_OURS: Final = "workers."
_IMPORT: Final = """\
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception:
        pass
"""
_COMPILE: Final = """\
import compileall, os, sys
os.nice(19)
compileall.compile_dir(sys.argv[1], maxlevels=30, quiet=2)
"""


def first_imports(python: Path) -> list[list[str]]:
    """Command lines that import what tasks import first; what is not installed is left out.

    They may run side by side: each imports much that the others do not.
    """
    kinds = (TRAINING + _LATER[:1], LAB + _LATER[1:], SERVING)
    return [
        [str(python), "-I", "-c", _IMPORT, *(name for name in kind if not name.startswith(_OURS))]
        for kind in kinds
    ]


def compile_rest(python: Path) -> list[str]:
    """The command line that compiles all that is not compiled yet, standing back for others."""
    return [str(python), "-I", "-c", _COMPILE, str(python.parent.parent / "lib")]
