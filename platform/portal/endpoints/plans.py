"""Plans of rollouts: the steps by which traffic moves to a revision. Pure, no I/O."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from slipway.schemas.endpoints import Plan, PlanKind

CANARY_PERCENTS = (1, 10, 50, 100)
ALL = 100


@dataclass(frozen=True)
class TrafficStep:
    """Share of the traffic that goes to the new revision, and the time before the next step.

    `shadow_percent` of the answered predictions are copied to it, and its answers are only
    compared.
    """

    percent: int
    bake_s: float
    shadow_percent: float = 0.0

    @property
    def bake(self) -> timedelta:
        """Duration of the step."""
        return timedelta(seconds=self.bake_s)

    def describe(self) -> str:
        """Describe the step, as a part of a sentence."""
        if self.shadow_percent:
            return f"{self.shadow_percent:g} % of the predictions are mirrored to it"
        return f"{self.percent} % of the traffic is routed to it"


def steps_of(plan: Plan) -> list[TrafficStep]:
    """Return the steps of a plan, in order."""
    if plan.kind == PlanKind.SHADOW:
        return [TrafficStep(0, plan.bake_s, plan.shadow_percent)]
    if plan.kind == PlanKind.ALL_AT_ONCE:
        return [TrafficStep(ALL, plan.bake_s)]
    percents = [*(plan.percents or CANARY_PERCENTS)]
    if percents[-1] != ALL:
        percents.append(ALL)
    return [TrafficStep(percent, plan.bake_s) for percent in percents]


def stored(steps: Sequence[TrafficStep]) -> list[dict[str, Any]]:
    """Return the steps as dicts for the database."""
    return [asdict(step) for step in steps]


def step_at(steps: Sequence[dict[str, Any]], index: int) -> TrafficStep:
    """Return one of the stored steps, or the last one for an index beyond."""
    return TrafficStep(**steps[min(index, len(steps) - 1)])
