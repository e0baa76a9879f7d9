"""Training of a model with a loss on several ranks. One word chooses the strategy.

    >>> import slipway.distributed as dist

    >>> trainer = dist.prepare(model, make_optimizer, loss_fn, strategy="zero3+offload")
    >>> trainer.resume()
    >>> for batch in trainer.shard(dataset, batch_size=256, epochs=3):
    ...     loss = trainer.step(batch)

The same script runs alone on a laptop, under torchrun, and under `slipway train`. Needs torch.
"""

from slipway.distributed.batches import Share
from slipway.distributed.checkpoint import Checkpoints
from slipway.distributed.choice import Choice, Facts, choose_strategy
from slipway.distributed.errors import (
    EXIT_STOPPED,
    CheckpointError,
    DistributedError,
    PeerLost,
    StrategyError,
    StrategyNotPossible,
)
from slipway.distributed.prepare import prepare
from slipway.distributed.retention import Retention
from slipway.distributed.trainer import Trainer
from slipway.schemas.strategy import Strategy, parse_strategy

__all__ = [
    "EXIT_STOPPED",
    "CheckpointError",
    "Checkpoints",
    "Choice",
    "DistributedError",
    "Facts",
    "PeerLost",
    "Retention",
    "Share",
    "Strategy",
    "StrategyError",
    "StrategyNotPossible",
    "Trainer",
    "choose_strategy",
    "parse_strategy",
    "prepare",
]
