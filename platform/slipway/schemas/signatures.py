"""Wire schemas of signatures: inputs and outputs of a model."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from slipway.schemas.base import AnswerSchema, Line, RequestSchema, Whole


class ElementType(StrEnum):
    """Element types of tensors, by their names in NumPy and MLflow."""

    BOOL = "bool"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    STRING = "string"


class TensorIn(RequestSchema):
    """One input or output of a model. `shape` is that of a batch, with -1 for any length."""

    name: Annotated[Line, Field(min_length=1, max_length=200)]
    type: ElementType
    shape: list[Annotated[Whole, Field(ge=-1, le=2**31 - 1)]] = Field(min_length=1, max_length=16)


class SignatureIn(RequestSchema):
    """Inputs of a model, in their order, and its outputs."""

    inputs: list[TensorIn] = Field(min_length=1, max_length=1000)
    outputs: list[TensorIn] = Field(default=[], max_length=1000)

    @model_validator(mode="after")
    def _names_differ(self) -> "SignatureIn":
        for side in (self.inputs, self.outputs):
            names = [tensor.name for tensor in side]
            if len(set(names)) != len(names):
                raise ValueError("two tensors of one side have the same name")
        return self


class ColumnOut(AnswerSchema):
    """One input, output or parameter of a signature. `shape` is that of a tensor."""

    name: str
    type: str
    required: bool = True
    shape: list[int] | None = None


class SignatureOut(AnswerSchema):
    """Inputs and outputs of a model."""

    inputs: list[ColumnOut]
    outputs: list[ColumnOut]
    params: list[ColumnOut] = []
