"""Errors of training on several ranks.

SlipwayError
└── DistributedError
    ├── StrategyNotPossible       the strategy, the model and the batch do not fit together
    ├── PeerLost          another rank died, froze or cannot be reached
    └── CheckpointError   a checkpoint could not be written or read

An unknown strategy raises a StrategyError (slipway.schemas.strategy).
"""

from typing import ClassVar

from slipway.errors import SlipwayError
from slipway.schemas.strategy import StrategyError

__all__ = [
    "EXIT_STOPPED",
    "CheckpointError",
    "DistributedError",
    "PeerLost",
    "StrategyError",
    "StrategyNotPossible",
]

# EX_TEMPFAIL of sysexits(3): stopped on request after a checkpoint; start again to continue.
EXIT_STOPPED = 75


class DistributedError(SlipwayError):
    """Base of the errors of training on several ranks."""

    title: ClassVar[str] = "Training cannot go on"
    default_code: ClassVar[str] = "distributed"


class StrategyNotPossible(DistributedError):
    """The strategy, the model and the batch do not fit together."""

    title = "The strategy does not fit"
    default_code = "strategy_not_possible"


class PeerLost(DistributedError):
    """Another rank died, froze or cannot be reached. This rank is healthy."""

    title = "Another rank was lost"
    default_code = "peer_lost"


class CheckpointError(DistributedError):
    """A checkpoint could not be written or read."""

    title = "Checkpoint failed"
    default_code = "checkpoint"
