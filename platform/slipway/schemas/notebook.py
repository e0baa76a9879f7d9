"""A notebook as the script a job runs: its code cells, one after the other.

Used by the SDK for the code of a folder and by the portal for what is uploaded, so that the same
notebook is the same job from everywhere.
"""

import io
import re
import tokenize

from slipway.schemas.json_text import read_json

SUFFIX = ".ipynb"
# `personal` is another folder in JupyterLab, and `.slipway` contains state of the platform.
RESERVED_NAMES = ("personal", ".slipway")
# Magic commands that only affect the display. A script behaves the same without them.
_HARMLESS = re.compile(
    r"%(matplotlib|config|load_ext|reload_ext|autoreload|precision|pylab|xmode|pdb)\b"
)
_COMMAND = re.compile(r"[ \t]*(%|!|\?)|[ \t]*[A-Za-z_][\w.]*\?{1,2}[ \t]*$")
_TIMED = re.compile(r"%%(time|capture)\b.*$")
_MOST_SHOWN = 80
_BETWEEN = {
    *(tokenize.NEWLINE, tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT),
}


class NotebookError(ValueError):
    """The file is not a notebook that can run as a script.

    `fault` follows the name of the file ("is not a notebook"). `next_step` says what to do.
    """

    def __init__(self, fault: str, next_step: str) -> None:
        super().__init__(f"it {fault}\nNext step: {next_step}")
        self.fault = fault
        self.next_step = next_step


def is_reserved(path: str) -> bool:
    """Return whether a path begins with a folder name that is reserved in workspaces."""
    return path.partition("/")[0] in RESERVED_NAMES


def script_name(notebook: str) -> str:
    """Return the path of the script of a notebook, in the same folder."""
    return f"{notebook}.py"


def script_of(content: bytes, *, label: str) -> bytes:
    """Return the code cells of a notebook as a script. Its first line names `label` as the origin.

    Raises NotebookError for a file that is no notebook of Python, or for a cell with a command that
    only a notebook understands (`!pip install …`).
    """
    try:
        document = read_json(content)
        language = document.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise NotebookError("is not a notebook", "Save it again in JupyterLab.") from None
    if str(language).lower() != "python":
        raise NotebookError(
            f"is a notebook of {_printable(str(language))}", "Only Python can be run as a job."
        )
    parts = [
        f"# %% cell {number} of {label}\n{_cell(source, number)}\n"
        for number, source in enumerate(sources, start=1)
    ]
    return "\n".join(parts).encode(errors="backslashreplace")


def script_of_cell(source: str) -> str:
    """Return the code of one cell as a script. Raises NotebookError as `script_of` does."""
    return _cell(source, None)


def _cell(source: str, number: int | None) -> str:
    lines = source.split("\n")
    if lines and _TIMED.match(lines[0]):
        lines[0] = f"# {lines[0]}"
    for index, line in enumerate(lines):
        if _HARMLESS.match(line.strip()):
            lines[index] = f"{line[: len(line) - len(line.lstrip())]}pass  # {line.strip()}"
    code = "\n".join(lines)
    suspects = [line for line in lines if _COMMAND.match(line)]
    if suspects and _has_command(code):
        place = "" if number is None else f" in its code cell {number}"
        raise NotebookError(
            f"has the command '{_printable(suspects[0].strip())}'{place}, "
            "which only a notebook understands",
            "Take it out; what it installs belongs into a requirements file (--requirements).",
        )
    return code


def _has_command(code: str) -> bool:
    """Return whether a statement begins with a command.

    Inside a statement, the same characters may be Python. Uses tokens only, because compiling
    untrusted code can exhaust the stack.
    """
    begins = True
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type in _BETWEEN:
                begins = begins or token.type == tokenize.NEWLINE
                continue
            if token.string in ("!", "?") or (begins and token.string == "%"):
                return True
            begins = False
    except (tokenize.TokenError, SyntaxError):
        return True  # not Python, and one of its lines looks like a command
    return False


def _printable(text: str) -> str:
    """Return untrusted text as one short, sanitized line."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:_MOST_SHOWN])
