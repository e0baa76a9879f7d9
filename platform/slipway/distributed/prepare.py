"""From a model, an optimizer and a loss to a trainer, by one word."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ParallelStyle

from slipway.distributed.build import Recipe, TrainingTarget, build_engine
from slipway.distributed.checkpoint import Checkpoints
from slipway.distributed.choice import choose_strategy
from slipway.distributed.engine import LossFunction
from slipway.distributed.exchange import gather_json
from slipway.distributed.measure import measure_facts
from slipway.distributed.optimizers import OptimizerFactory, ScheduleFactory
from slipway.distributed.ranks import (
    Ranks,
    choose_device,
    join_group,
    read_ranks,
    timeout_from,
)
from slipway.distributed.trainer import Trainer
from slipway.schemas.strategy import DEFAULT_STRATEGY, Strategy, parse_strategy

logger = logging.getLogger(__name__)

STRATEGY_VARIABLE = "SLIPWAY_STRATEGY"


def prepare(
    model: nn.Module,
    optimizer_factory: OptimizerFactory,
    loss_fn: LossFunction,
    *,
    strategy: str | None = None,
    schedule: ScheduleFactory | None = None,
    microbatches: int | None = None,
    split_points: Sequence[str] | None = None,
    tensor_plan: Mapping[str, ParallelStyle] | None = None,
    clip_norm: float | None = None,
    checkpoints: Checkpoints | str | Path | None = None,
    device: str | torch.device | None = None,
    timeout_s: float | None = None,
) -> Trainer:
    """Return a trainer of `model` on all ranks of this job. Collective. See docs/strategies.md.

    `model` is built on the CPU by every rank, starts from the weights of rank 0, and is changed in
    place: take the trained weights from `trainer.state_dict()`. `optimizer_factory` builds an
    optimizer from a list of parameters (each rank for its own part), `schedule` a learning-rate
    schedule from it, moved on once a step. `loss_fn(output, target)` is the mean over its samples.

    `strategy` is a word such as `zero3+offload`. It defaults to SLIPWAY_STRATEGY (`slipway train
    --strategy` sets it), then to `ddp`. With one rank every word means plain training.
    `microbatches`: number of pieces in which a rank computes its share (by default twice the
    stages of a pipeline, else 1). `split_points`: submodules that begin a pipeline stage, the first
    excepted. By default stages become equally heavy. `tensor_plan`: names of submodules (* for any
    part) to torch's parallel styles, by default those that can safely be split. `clip_norm` scales
    gradients down where the norm of all of them is larger.

    `checkpoints` is a folder or Checkpoints(...), by default the folder Slipway sets. `device`
    defaults to this rank's GPU, else the CPU. A rank silent for `timeout_s` seconds is given up,
    by default SLIPWAY_COLLECTIVE_TIMEOUT_S, then 120.

    Raises StrategyError for a word that is none or does not fit the number of ranks,
    StrategyNotPossible when model and strategy do not fit.
    """
    recipe = Recipe(
        model=model,
        factory=optimizer_factory,
        loss_function=loss_fn,
        schedule=schedule,
        microbatches=microbatches,
        split_points=split_points,
        tensor_plan=tensor_plan,
        clip_norm=clip_norm,
    )
    if not isinstance(checkpoints, Checkpoints):
        checkpoints = Checkpoints(folder=checkpoints)
    return _prepare(recipe, checkpoints, _requested_strategy(strategy), device, timeout_s)


def _prepare(
    recipe: Recipe,
    checkpoints: Checkpoints,
    word: str,
    device: str | torch.device | None,
    timeout_s: float | None,
) -> Trainer:
    parsed = parse_strategy(word or DEFAULT_STRATEGY)
    ranks = read_ranks()
    timeout_s = timeout_from(os.environ, timeout_s)
    if not parsed.is_auto:
        parsed.layout(ranks.world_size)  # report a misfit before ranks wait for each other
    chosen_device = choose_device(ranks, device)
    owns_group = join_group(ranks, chosen_device, timeout_s=timeout_s)
    try:
        reason = f"{parsed} was asked for." if word else f"{parsed} is the default."
        if parsed.is_auto:
            parsed, reason = _choose(recipe, ranks, chosen_device)
        if ranks.is_first:
            logger.info("Strategy %s on %d ranks: %s", parsed, ranks.world_size, reason)
        job = TrainingTarget(
            parsed, parsed.layout(ranks.world_size), ranks, chosen_device, timeout_s
        )
        seed = int(gather_json(torch.initial_seed() % 2**62)[0])
        engine = build_engine(recipe, job)
        return Trainer(engine, job, checkpoints, reason=reason, seed=seed, owns_group=owns_group)
    except BaseException:
        if owns_group:
            dist.destroy_process_group()
        raise


def _requested_strategy(given: str | None) -> str:
    """Return what the script asks for, else what the environment does, else nothing."""
    wished = os.environ.get(STRATEGY_VARIABLE, "")
    if given and wished and given != wished:
        logger.warning(
            "The script asks for %s, so %s=%s (--strategy) has no effect.",
            given,
            STRATEGY_VARIABLE,
            wished,
        )
    return given or wished


def _choose(recipe: Recipe, ranks: Ranks, device: torch.device) -> tuple[Strategy, str]:
    details = measure_facts(recipe.model, recipe.factory, ranks, device)
    choice = choose_strategy(details)
    # All ranks measure the same, but must use the same result: that of rank 0.
    word, reason = gather_json([choice.word, choice.reason])[0]
    return parse_strategy(word), reason
