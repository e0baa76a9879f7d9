"""References and conditions in the steps of a pipeline. Standard library only.

    ${parameters.NAME}              a parameter of the pipeline
    ${steps.STEP.outputs.OUTPUT}    an output of another step; of a fan-out, the list of all
    ${steps.STEP.state}             how that step ended; also .job, .run and .sweep, ids of its work
    ${item}                         the item of a fan-out

A text that is one reference alone has the value of it, whatever its type. Within a longer text a
value that is no text is written as JSON. A condition is a reference, or two operands with one of
`== != < <= > >=` between them. An operand is a reference or a JSON value.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

STEP_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,47}"
VALUE_NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
# Fields of a step that others may refer to besides its outputs, also if it has failed.
STEP_FIELDS = ("state", "job", "run", "sweep")
_MARK = re.compile(r"\$\{([^{}]*)\}")
_PARAMETER = re.compile(rf"parameters\.({VALUE_NAME})")
_OUTPUT = re.compile(rf"steps\.({STEP_NAME})\.outputs\.({VALUE_NAME})")
_FIELD = re.compile(rf"steps\.({STEP_NAME})\.({'|'.join(STEP_FIELDS)})")
_ITEM = "item"
_CONDITION = re.compile(r"(?P<left>.+?)\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>.+)")
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class PipelineError(ValueError):
    """A pipeline is not valid. `field` says where, `message` why, `next_step` what to do."""

    def __init__(self, message: str, *, field: str, next_step: str) -> None:
        super().__init__(f"{message} {next_step}")
        self.message = message
        self.field = field
        self.next_step = next_step


@dataclass(frozen=True)
class Reference:
    """A reference. `step` is empty for a parameter and an item, `part` is its last word.

    Of a parameter `part` is the name, of an output the name of the output.
    """

    kind: str
    part: str = ""
    step: str = ""

    def __str__(self) -> str:
        words = {
            "parameter": f"parameters.{self.part}",
            "output": f"steps.{self.step}.outputs.{self.part}",
            "field": f"steps.{self.step}.{self.part}",
            "item": _ITEM,
        }
        return f"${{{words[self.kind]}}}"


Lookup = Callable[[Reference], Any]


@dataclass(frozen=True)
class Condition:
    """A condition, parsed. Without an operator it is the truth of `left`."""

    left: Any
    operator: str = ""
    right: Any = None

    def holds(self, lookup: Lookup) -> bool:
        """Return whether it is true. Raises TypeError for values that have no order."""
        left = substitute(self.left, lookup)
        if not self.operator:
            return bool(left)
        return bool(_OPERATORS[self.operator](left, substitute(self.right, lookup)))


def parse_reference(text: str, field: str) -> Reference:
    """Parse what is between the braces. Raises PipelineError."""
    text = text.strip()
    if text == _ITEM:
        return Reference("item")
    if match := _PARAMETER.fullmatch(text):
        return Reference("parameter", match[1])
    if match := _OUTPUT.fullmatch(text):
        return Reference("output", match[2], match[1])
    if match := _FIELD.fullmatch(text):
        return Reference("field", match[2], match[1])
    raise PipelineError(
        f"${{{text[:80]}}} is no reference.",
        field=field,
        next_step="Write ${parameters.NAME}, ${steps.STEP.outputs.OUTPUT} or ${item}.",
    )


def references_in(value: Any, field: str) -> Iterator[Reference]:
    """Yield the references in a value, however deep. Raises PipelineError."""
    if isinstance(value, str):
        for text in _MARK.findall(value):
            yield parse_reference(text, field)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from references_in(item, f"{field}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from references_in(item, field)


def substitute(value: Any, lookup: Lookup) -> Any:
    """Return a value with the values of its references in their place."""
    if isinstance(value, dict):
        return {key: substitute(item, lookup) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, lookup) for item in value]
    if not isinstance(value, str):
        return value
    whole = _MARK.fullmatch(value)
    if whole:
        return lookup(parse_reference(whole[1], ""))
    return _MARK.sub(lambda match: as_text(lookup(parse_reference(match[1], ""))), value)


def as_text(value: Any) -> str:
    """Return a value as an argument of a command: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def parse_condition(text: str, field: str) -> Condition:
    """Parse a condition. Raises PipelineError."""
    text = text.strip()
    if _MARK.fullmatch(text):
        return Condition(text)
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise PipelineError(
            f"{text[:80]} is no condition.",
            field=field,
            next_step="Write it like ${steps.evaluate.outputs.accuracy} >= 0.9.",
        )
    left, right = (_operand(match[side], field) for side in ("left", "right"))
    return Condition(left, match["operator"], right)


def _operand(text: str, field: str) -> Any:
    text = text.strip()
    if _MARK.fullmatch(text):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = None if "${" in text else _quoted(text)
    if isinstance(value, str | int | float | bool):
        return value
    raise PipelineError(
        f"{text[:80]} in the condition is neither a reference nor a value.",
        field=field,
        next_step='Write a reference, a number, true, false, or a text in quotes: "linear".',
    )


def _quoted(text: str) -> str | None:
    """Return the content of a text in single quotes, as YAML and Python write it."""
    is_quoted = len(text) > 1 and text[0] == text[-1] == "'" and "'" not in text[1:-1]
    return text[1:-1] if is_quoted else None
