"""Points of the unit cube as values of parameters, and back."""

import math

from slipway.schemas.sweeps import ParameterSpace


def value_at(space: ParameterSpace, part: float) -> float | int | str:
    """Return the value at a part of a range: 0 is its low end, 1 the high one."""
    values = space.values() if not space.log else None
    if values is not None:
        return values[min(int(part * len(values)), len(values) - 1)]
    low, high = float(space.low or 0), float(space.high or 0)
    if space.type == "int":
        low, high = low - 0.5, high + 0.5
    value = low * (high / low) ** part if space.log else low + (high - low) * part
    if space.type == "int":
        return min(max(round(value), int(space.low or 0)), int(space.high or 0))
    return min(max(value, low), high)


def part_of(space: ParameterSpace, value: float) -> float:
    """Return where in a range of numbers a value is: a part that `value_at` maps to it."""
    values = space.values() if not space.log else None
    if values is not None:
        nearest = min(range(len(values)), key=lambda index: abs(float(values[index]) - value))
        return (nearest + 0.5) / len(values)
    low, high = float(space.low or 0), float(space.high or 0)
    if space.type == "int":
        low, high = low - 0.5, high + 0.5
    if space.log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)
