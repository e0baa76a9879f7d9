"""From a model, an optimizer and a loss to a trainer, by one word."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ParallelStyle

from slipway.distributed.build import Job, Recipe, build_engine
from slipway.distributed.checkpoint import Checkpoints
from slipway.distributed.choice import Choice, choose_strategy
from slipway.distributed.engine import LossFunction
from slipway.distributed.exchange import gather_json
from slipway.distributed.measure import measure_facts
from slipway.distributed.optimizers import OptimizerFactory, ScheduleFactory
from slipway.distributed.ranks import choose_device, join_group, read_ranks, timeout_from
from slipway.distributed.trainer import Trainer
from slipway.schemas.strategy import DEFAULT_STRATEGY, parse_strategy

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
    """Return a trainer of `model` on all ranks of this job. Collective.

    model
        Built on the CPU by every rank; all start from the weights of rank 0. It is changed in
        place: take the trained weights from `trainer.state_dict()`.
    optimizer_factory
        Builds an optimizer from a list of parameters; each rank calls it for its own part.
    loss_fn
        `loss_fn(output, target)`, the mean over the samples it is given.
    strategy
        A word such as `zero3+offload` (docs/strategies.md); defaults to SLIPWAY_STRATEGY, which
        `slipway train --strategy` sets, then to `ddp`. With one rank every word means plain
        training.
    schedule
        Builds a learning-rate schedule from an optimizer; it is moved on once a step.
    microbatches
        In how many pieces a rank computes its share: gradients add up, activations need less
        memory. A pipeline sends them one after another; there it defaults to twice the stages.
    split_points
        Names of the submodules that begin a pipeline stage (the first excepted); by default the
        model is cut where stages become equally heavy.
    tensor_plan
        How to split layers: names of submodules (* for any part) to torch's parallel styles; by
        default layers that can safely be split are found.
    clip_norm
        Scale gradients down where the norm of all of them together is larger.
    checkpoints
        A folder, or Checkpoints(...); defaults to the folder in SLIPWAY_CHECKPOINT_DIR.
    device
        Defaults to this rank's GPU, else the CPU.
    timeout_s
        After how many seconds a silent rank is given up: SLIPWAY_COLLECTIVE_TIMEOUT_S, else 120.

    Raises StrategyError for a word that is none or does not fit the number of ranks, NotPossible
    when model and strategy do not fit.
    """
    parsed = parse_strategy(_word(strategy))
    ranks = read_ranks()
    timeout_s = timeout_from(os.environ, timeout_s)
    if not parsed.is_auto:
        parsed.layout(ranks.world_size)  # a misfit is told before ranks wait for each other
    chosen_device = choose_device(ranks, device)
    owns_group = join_group(ranks, chosen_device, timeout_s=timeout_s)
    try:
        reason = f"{parsed} was asked for."
        if parsed.is_auto:
            choice = _choose(model, optimizer_factory, ranks.world_size, chosen_device)
            parsed, reason = parse_strategy(choice.word), choice.reason
        job = Job(parsed, parsed.layout(ranks.world_size), ranks, chosen_device, timeout_s)
        if ranks.is_first:
            logger.info("Strategy %s on %d ranks: %s", parsed, ranks.world_size, reason)
        seed = int(gather_json(torch.initial_seed() % 2**62)[0])
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
        engine = build_engine(recipe, job)
        if not isinstance(checkpoints, Checkpoints):
            checkpoints = Checkpoints(folder=checkpoints)
        return Trainer(engine, job, checkpoints, reason=reason, seed=seed, owns_group=owns_group)
    except BaseException:
        if owns_group:
            dist.destroy_process_group()
        raise


def _word(given: str | None) -> str:
    wished = os.environ.get(STRATEGY_VARIABLE, "")
    if given and wished and given != wished:
        logger.warning(
            "The script asks for %s, so %s=%s (--strategy) has no effect.",
            given,
            STRATEGY_VARIABLE,
            wished,
        )
    return given or wished or DEFAULT_STRATEGY


def _choose(
    model: nn.Module, factory: OptimizerFactory, world_size: int, device: torch.device
) -> Choice:
    facts = measure_facts(model, factory, read_ranks(), device)
    choice = choose_strategy(facts)
    # Measured alike on all ranks, but one word must rule: that of rank 0.
    word, reason = (
        gather_json([choice.word, choice.reason])[0]
        if world_size > 1
        else (
            choice.word,
            choice.reason,
        )
    )
    return Choice(str(word), str(reason))
