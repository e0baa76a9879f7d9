"""Run specification of a workload: the part of its row that only agents read."""

import re
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from portal.core.errors import InvalidInput
from slipway.schemas.agent import ProgramName
from slipway.schemas.backends import DEFAULT_BACKEND, BackendName
from slipway.schemas.frameworks import FrameworkName
from slipway.schemas.kept_files import MAX_LIMIT_BYTES, MOST_PATTERNS

MAX_SPEC_BYTES = 128 * 1024
_VARIABLE = re.compile(r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_KEY = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
_PERSON = "person-"
_PERSONAL_KEY = rf"^{_PERSON}[A-Za-z0-9_]{{1,57}}$"


class RunSpec(BaseModel):
    """Command of one task. `persistent_key` names, within the project, what outlives an attempt.

    `keep` and `keep_limit_bytes` are rules for the files it writes, see
    `slipway.schemas.kept_files`. `personal_key` names in the same way the folder of one person,
    see `personal_key_of`. With a `framework` the ranks form its cluster first. A task that has
    failed stays for `keep_failed_s`, see `kept_tasks`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    argv: Annotated[tuple[str, ...], Field(min_length=1, max_length=256)]
    env: dict[str, str] = {}
    backend: BackendName = DEFAULT_BACKEND
    warm: ProgramName | None = None
    persistent_key: Annotated[str, Field(pattern=_KEY)] | None = None
    personal_key: Annotated[str, Field(pattern=_PERSONAL_KEY)] | None = None
    stop_grace_s: Annotated[float, Field(ge=0, le=3600)] | None = None
    keep: Annotated[tuple[str, ...], Field(max_length=MOST_PATTERNS)] = ()
    keep_limit_bytes: Annotated[int, Field(ge=0, le=MAX_LIMIT_BYTES)] = 0
    framework: FrameworkName | None = None
    hang_after_s: Annotated[float, Field(ge=10, le=7 * 86_400)] | None = None
    keep_failed_s: Annotated[int, Field(ge=0, le=86_400)] = 0

    @field_validator("persistent_key")
    @classmethod
    def _not_personal(cls, key: str | None) -> str | None:
        # Both kinds of folders are siblings on a node.
        if key is not None and key.startswith(_PERSON):
            raise ValueError(f"names that begin with {_PERSON} belong to personal folders")
        return key

    @field_validator("env")
    @classmethod
    def _variables(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if not _VARIABLE.match(name):
                raise ValueError(f"{name[:40]!r} is not a valid variable name")
            if name.startswith("SLIPWAY_"):
                raise ValueError(
                    f"{name[:40]} is reserved: names that begin with SLIPWAY_ belong to the "
                    "platform"
                )
        return env

    @model_validator(mode="after")
    def _storable(self) -> Self:
        texts = [*self.argv, *self.env.values()]
        if any("\0" in text or not _is_unicode(text) for text in texts):
            raise ValueError("contains a NUL character or a lone surrogate")
        if sum(len(text) for text in [*texts, *self.env]) > MAX_SPEC_BYTES:
            raise ValueError(f"is longer than {MAX_SPEC_BYTES} characters")
        return self


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def personal_key_of(user_id: str) -> str:
    """Return the key of a person's folder. It follows from the id, which nobody can choose."""
    return f"{_PERSON}{user_id}"


def spec_from(**details: object) -> RunSpec:
    """Return a checked spec. Raises InvalidInput that names the part at fault."""
    try:
        return RunSpec.model_validate(details)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "spec"
        message = first["msg"].removeprefix("Value error, ")
        raise InvalidInput(
            f"{field}: {message}", field=field, next_step="Fix this field and submit again."
        ) from error
