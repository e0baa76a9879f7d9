"""A notebook as the script a job runs: its code cells, one after the other."""

import json
import re

from slipway.errors import InvalidInput
from slipway.visible import visible

SUFFIX = ".ipynb"
# Commands of a notebook that only concern its screen; a script is the same without them.
_HARMLESS = re.compile(
    r"%(matplotlib|config|load_ext|reload_ext|autoreload|precision|pylab|xmode|pdb)\b"
)
_COMMAND = re.compile(r"[ \t]*(%|!|\?)|[ \t]*[A-Za-z_][\w.]*\?{1,2}[ \t]*$")
_TIMED = re.compile(r"%%(time|capture)\b.*$")


def script_name(notebook: str) -> str:
    """Return the path of the script made of a notebook; it lies beside it."""
    return f"{notebook}.py"


def script_of(content: bytes, *, name: str) -> bytes:
    """Return the code cells of a notebook as a script.

    Raises InvalidInput for a file that is no notebook of Python, or for a cell with a command that
    only a notebook understands (`!pip install …`).
    """
    try:
        document = json.loads(content)
        language = document.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise _refused(name, "is not a notebook", "Save it again in JupyterLab.") from None
    if str(language).lower() != "python":
        raise _refused(
            name, f"is a notebook of {visible(str(language))}", "Only Python can be run as a job."
        )
    parts = [
        f"# %% cell {number} of {visible(name)}\n{_cell(source, number, name)}\n"
        for number, source in enumerate(sources, start=1)
    ]
    return "\n".join(parts).encode(errors="backslashreplace")


def _cell(source: str, number: int, name: str) -> str:
    lines = source.split("\n")
    if lines and _TIMED.match(lines[0]):
        lines[0] = f"# {lines[0]}"
    for index, line in enumerate(lines):
        if _HARMLESS.match(line.strip()):
            lines[index] = f"{line[: len(line) - len(line.lstrip())]}pass  # {line.strip()}"
    code = "\n".join(lines)
    if any(_COMMAND.match(line) for line in lines) and not _is_python(code):
        command = next(line for line in lines if _COMMAND.match(line))
        raise _refused(
            name,
            f"has the command {visible(command.strip())[:80]!r} in its code cell {number}, "
            "which only a notebook understands",
            "Take it out; what it installs belongs into a requirements file (--requirements).",
        )
    return code


def _is_python(code: str) -> bool:
    """Whether a line that looks like a command is Python after all, inside a string perhaps."""
    try:
        compile(code, "<cell>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _refused(name: str, fault: str, next_step: str) -> InvalidInput:
    return InvalidInput(
        f"{visible(name)} {fault}. Nothing was sent.",
        code="notebook_not_runnable",
        field="script",
        next_step=next_step,
    )
