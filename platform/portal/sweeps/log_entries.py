"""Checks of log entries of Optuna's JournalStorage. No Django, no I/O.

Each client replays all entries of a storage, so an entry that Optuna cannot apply would break the
storage for everybody. Entries refer to earlier ones by number only, and Optuna skips those that
refer to nothing, so each entry can be checked by itself.
"""

import json
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from portal.core.errors import InvalidInput
from slipway.schemas.base import forbidden_character
from slipway.schemas.studies import MAX_ENTRY_BYTES

RUNNING, COMPLETE, PRUNED, FAILED, WAITING = range(5)
_FINISHED = (COMPLETE, PRUNED, FAILED)
# Optuna copies attributes recursively.
_MAX_DEPTH = 32
_MAX_STEPS = 1e15
_NEXT_STEP = (
    "Append what Optuna 4 or later writes: use slipway.optuna_storage(), and update Slipway "
    "if it refuses an entry of Optuna."
)


def _clean_name(text: str) -> str:
    bad = forbidden_character(text)
    if bad is not None:
        raise ValueError(f"holds the character U+{ord(bad):04X}, which is not allowed")
    return text


def _known_time(text: str) -> str:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is no time in ISO 8601") from None
    if time.tzinfo is None:
        raise ValueError("has no time zone")
    if not 1970 <= time.year <= 9000:
        raise ValueError("is not between the years 1970 and 9000")
    return text


def _known_distribution(text: str) -> str:
    read_distribution(text)
    return text


StudyName = Annotated[str, Field(min_length=1, max_length=250), AfterValidator(_clean_name)]
ParamName = Annotated[str, Field(min_length=1, max_length=250), AfterValidator(_clean_name)]
Time = Annotated[str, Field(max_length=64), AfterValidator(_known_time)]
DistributionText = Annotated[str, AfterValidator(_known_distribution)]
Id = Annotated[int, Field(ge=0, lt=2**31)]
StateNumber = Literal[0, 1, 2, 3, 4]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Bounded = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Values = Annotated[list[float], Field(min_length=1, max_length=100)]
Attribute = Annotated[dict[str, Any], Field(min_length=1, max_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class _Distribution(_Strict):
    # Optuna passes all attributes to a constructor.
    model_config = ConfigDict(strict=True, extra="forbid")


class FloatRange(_Distribution):
    """Attributes of a FloatDistribution."""

    low: Finite
    high: Finite
    log: bool = False
    step: Finite | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low > self.high or (self.log and self.low <= 0):
            raise ValueError("low must be at most high, and more than 0 if log is true")
        if self.step is not None and (
            self.log or self.step <= 0 or (self.high - self.low) / self.step > _MAX_STEPS
        ):
            raise ValueError("step must be more than 0, not too small, and without log")
        return self

    def refusal(self, value: float) -> str:
        """Return the reason why this is no internal value of the parameter, or ""."""
        return "" if math.isfinite(value) else "must be finite"


class IntRange(_Distribution):
    """Attributes of an IntDistribution."""

    low: Bounded
    high: Bounded
    log: bool = False
    step: Annotated[int, Field(gt=0, lt=2**63)] = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low > self.high or (self.log and (self.low < 1 or self.step != 1)):
            raise ValueError("low must be at most high; with log, low at least 1 and step 1")
        return self

    def refusal(self, value: float) -> str:
        """Return the reason why this is no internal value of the parameter, or ""."""
        return "" if math.isfinite(value) else "must be finite"


class Choices(_Distribution):
    """Attributes of a CategoricalDistribution."""

    choices: Annotated[list[bool | int | float | str | None], Field(min_length=1)]

    def refusal(self, value: float) -> str:
        """Return the reason why this is no internal value of the parameter, or ""."""
        if math.isfinite(value) and 0 <= int(value) < len(self.choices):
            return ""
        return f"must be the index of one of {len(self.choices)} choices"


class _NamedFloat(_Strict):
    name: Literal["FloatDistribution"]
    attributes: FloatRange


class _NamedInt(_Strict):
    name: Literal["IntDistribution"]
    attributes: IntRange


class _NamedChoices(_Strict):
    name: Literal["CategoricalDistribution"]
    attributes: Choices


_DISTRIBUTION: TypeAdapter[_NamedFloat | _NamedInt | _NamedChoices] = TypeAdapter(
    Annotated[_NamedFloat | _NamedInt | _NamedChoices, Field(discriminator="name")]
)


def read_distribution(text: str) -> FloatRange | IntRange | Choices:
    """Return the distribution that Optuna writes as JSON, or raise ValueError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("is no distribution in JSON") from None
    try:
        return _DISTRIBUTION.validate_python(data).attributes
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"][1:]) or "name"
        reason = fault["msg"].removeprefix("Value error, ")
        raise ValueError(f"is no distribution of Optuna ({where}: {reason})") from None


class _Entry(_Strict):
    worker_id: Annotated[str, Field(min_length=1, max_length=200)]


class CreateStudy(_Entry):
    op_code: Literal[0]
    study_name: StudyName
    directions: Annotated[list[Literal[1, 2]], Field(min_length=1, max_length=100)]


class DeleteStudy(_Entry):
    op_code: Literal[1]
    study_id: Id


class SetStudyUserAttribute(_Entry):
    op_code: Literal[2]
    study_id: Id
    user_attr: Attribute


class SetStudySystemAttribute(_Entry):
    op_code: Literal[3]
    study_id: Id
    system_attr: Attribute


class CreateTrial(_Entry):
    op_code: Literal[4]
    study_id: Id
    datetime_start: Time | None
    datetime_complete: Time = ""
    state: StateNumber = 0
    value: float | None = None
    values: Values | None = None
    distributions: dict[ParamName, DistributionText] = Field(default_factory=dict)
    params: dict[ParamName, float] = Field(default_factory=dict)
    user_attrs: dict[str, Any] = Field(default_factory=dict)
    system_attrs: dict[str, Any] = Field(default_factory=dict)
    intermediate_values: dict[Annotated[str, Field(pattern=r"^-?\d{1,18}$")], float] = Field(
        default_factory=dict
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if set(self.params) != set(self.distributions):
            raise ValueError("params and distributions must have the same names")
        for name, value in self.params.items():
            reason = read_distribution(self.distributions[name]).refusal(value)
            if reason:
                raise ValueError(f"params.{name} {reason}")
        if self.value is not None and self.values is not None:
            raise ValueError("value and values cannot both be given")
        values = self.values or ([self.value] if self.value is not None else None)
        _check_end(self.state, values, self.datetime_complete)
        if self.state != WAITING and self.datetime_start is None:
            raise ValueError("datetime_start is missing")
        return self


class SetTrialParam(_Entry):
    op_code: Literal[5]
    trial_id: Id
    param_name: ParamName
    param_value_internal: float
    distribution: DistributionText

    @model_validator(mode="after")
    def _check(self) -> Self:
        reason = read_distribution(self.distribution).refusal(self.param_value_internal)
        if reason:
            raise ValueError(f"param_value_internal {reason}")
        return self


class SetTrialState(_Entry):
    op_code: Literal[6]
    trial_id: Id
    state: StateNumber
    values: Values | None
    datetime_start: Time = ""
    datetime_complete: Time = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.state == RUNNING and not self.datetime_start:
            raise ValueError("datetime_start is missing")
        _check_end(self.state, self.values, self.datetime_complete)
        return self


class SetTrialIntermediateValue(_Entry):
    op_code: Literal[7]
    trial_id: Id
    step: Bounded
    intermediate_value: float


class SetTrialUserAttribute(_Entry):
    op_code: Literal[8]
    trial_id: Id
    user_attr: Attribute


class SetTrialSystemAttribute(_Entry):
    op_code: Literal[9]
    trial_id: Id
    system_attr: Attribute


def _check_end(state: int, values: Sequence[float] | None, completed: str) -> None:
    if state in _FINISHED and not completed:
        raise ValueError("datetime_complete is missing")
    if state == COMPLETE and (not values or any(math.isnan(value) for value in values)):
        raise ValueError("values of a complete trial are missing or not a number")


LogEntry = (
    CreateStudy
    | DeleteStudy
    | SetStudyUserAttribute
    | SetStudySystemAttribute
    | CreateTrial
    | SetTrialParam
    | SetTrialState
    | SetTrialIntermediateValue
    | SetTrialUserAttribute
    | SetTrialSystemAttribute
)
_ENTRY: TypeAdapter[LogEntry] = TypeAdapter(Annotated[LogEntry, Field(discriminator="op_code")])


def checked_entry(text: str, *, at: int) -> str:
    """Return an entry as it is stored: ASCII, without spaces. Raises InvalidInput.

    `at` is its position in the request. An entry may have further fields: Optuna ignores them.
    """
    field = f"entries.{at}"
    if len(text) > MAX_ENTRY_BYTES:
        raise _too_long(field)
    try:
        data = json.loads(text)
        stored = json.dumps(data, separators=(",", ":"))
    except (ValueError, RecursionError):
        raise InvalidInput(f"Entry {at} is not JSON.", field=field, next_step=_NEXT_STEP) from None
    if len(stored) > MAX_ENTRY_BYTES:
        raise _too_long(field)
    if _depth_of(data) > _MAX_DEPTH:
        raise InvalidInput(
            f"Entry {at} is nested deeper than {_MAX_DEPTH} levels.",
            field=field,
            next_step="Flatten the attribute, or log it as an artifact of a run.",
        )
    try:
        _ENTRY.validate_python(data)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        # The first part of the location is the operation.
        names = [str(part) for part in fault["loc"][1:]]
        reason = fault["msg"].removeprefix("Value error, ")
        if fault["type"].startswith("union_tag"):
            names, reason = ["op_code"], "must be one of 0 to 9"
        raise InvalidInput(
            ascii(f"Entry {at} is no operation of Optuna: {': '.join([*names[:1], reason])}.")[
                1:-1
            ],
            field=".".join([field, *names[:1]]),
            next_step=_NEXT_STEP,
        ) from None
    return stored


def _too_long(field: str) -> InvalidInput:
    return InvalidInput(
        f"{field} is longer than {MAX_ENTRY_BYTES // 1024} KiB.",
        field=field,
        next_step="Store large values as artifacts of a run, and only their names as attributes.",
    )


def _depth_of(data: Any) -> int:
    """Return the number of levels of lists and objects."""
    depth, level = 0, [data]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > _MAX_DEPTH:
            break
        level = [
            child for item in level for child in (item.values() if isinstance(item, dict) else item)
        ]
    return depth
