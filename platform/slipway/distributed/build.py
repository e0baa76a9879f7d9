"""Turning a model and a strategy into the engine of this rank."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ParallelStyle
from torch.nn.parallel import DistributedDataParallel

from slipway.distributed.batches import Share
from slipway.distributed.clipping import GradientClip
from slipway.distributed.cuts import cut
from slipway.distributed.engine import Engine, LossFunction, Vote
from slipway.distributed.errors import StrategyNotPossible
from slipway.distributed.mesh import (
    PIPELINE,
    REPLICAS,
    MeshPosition,
    axis,
    build_mesh,
    mesh_position,
    uses_fully_shard,
)
from slipway.distributed.optimizers import (
    Named,
    OptimizerFactory,
    Optimizers,
    OwnedOptimizers,
    ScheduleFactory,
)
from slipway.distributed.parameter_server.roles import start_role
from slipway.distributed.pipeline import (
    STAGES_PER_RANK,
    PipelineEngine,
    build_schedule,
    default_microbatches,
    stages_of,
)
from slipway.distributed.ranks import Ranks
from slipway.distributed.sharding import repeated_blocks, shard
from slipway.distributed.tensor import split_layers
from slipway.distributed.tensor_plan import TensorPlan, expand_plan, find_plan
from slipway.distributed.whole import WholeModelEngine
from slipway.schemas.strategy import Layout, Sharing, Strategy


@dataclass(frozen=True, slots=True)
class Recipe:
    """User input: a model, how to train it, and preferences for dividing it."""

    model: nn.Module
    factory: OptimizerFactory
    loss_function: LossFunction
    schedule: ScheduleFactory | None = None
    microbatches: int | None = None
    split_points: Sequence[str] | None = None
    tensor_plan: Mapping[str, ParallelStyle] | None = None
    clip_norm: float | None = None


@dataclass(frozen=True, slots=True)
class TrainingTarget:
    """Strategy, layout, ranks and device that the model is built for."""

    strategy: Strategy
    layout: Layout
    ranks: Ranks
    device: torch.device
    timeout_s: float


def build_engine(recipe: Recipe, job: TrainingTarget) -> Engine:
    """Return the engine of this rank. Collective."""
    _check(recipe, job)
    if job.ranks.world_size > 1:
        _equalise(recipe.model)
    if job.strategy.servers is not None and job.layout.servers:
        return start_role(
            module=recipe.model,
            factory=recipe.factory,
            schedule=recipe.schedule,
            clip_norm=recipe.clip_norm,
            loss_function=recipe.loss_function,
            servers=job.strategy.servers,
            layout=job.layout,
            microbatches=recipe.microbatches or 1,
            device=job.device,
            timeout_s=job.timeout_s,
        )
    return _Builder(recipe, job).build()


def _check(recipe: Recipe, job: TrainingTarget) -> None:
    if any(tensor.is_meta for tensor in recipe.model.parameters()):
        raise StrategyNotPossible(
            "The model has weights on the meta device, which have no values to start from.",
            next_step="Build the model on the CPU; ranks keep only their part of it.",
        )
    if recipe.microbatches is not None and recipe.microbatches < 1:
        raise StrategyNotPossible(
            f"A share cannot be computed in {recipe.microbatches} micro-batches.",
            next_step="Give microbatches a number of at least 1, or leave it out.",
        )
    if recipe.clip_norm is not None and not recipe.clip_norm > 0:
        raise StrategyNotPossible(
            f"Gradients cannot be clipped to a norm of {recipe.clip_norm}.",
            next_step="Give clip_norm a number above 0, or leave it out.",
        )
    if recipe.clip_norm is not None and job.layout.servers > 1:
        raise StrategyNotPossible(
            "Several parameter servers do not know the norm of the whole gradient.",
            next_step="Leave clip_norm out, or use one server.",
        )
    if recipe.split_points is not None and "pipeline" not in str(job.strategy):
        raise StrategyNotPossible(
            f"split_points cut a pipeline, but the strategy is {job.strategy}.",
            next_step="Leave split_points out, or choose a pipeline.",
        )
    if recipe.tensor_plan is not None and "tensor" not in str(job.strategy):
        raise StrategyNotPossible(
            f"tensor_plan splits layers, but the strategy is {job.strategy}.",
            next_step="Leave tensor_plan out, or choose tensor.",
        )


def _equalise(model: nn.Module) -> None:
    """Start from the weights of rank 0 everywhere, whatever each script drew."""
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            values = tensor.detach().contiguous()
            dist.broadcast(values, src=0)
            tensor.copy_(values)


class _Builder:
    """Wraps the model step by step (cut, split, share) and then gives it an optimizer."""

    def __init__(self, recipe: Recipe, job: TrainingTarget) -> None:
        self._recipe = recipe
        self._job = job
        self._layout = job.layout
        self._place: MeshPosition = mesh_position(job.ranks.rank, job.layout)
        self._mesh: DeviceMesh | None = build_mesh(job.strategy, job.layout, job.device)
        self._share = Share(self._place.share(job.layout), job.layout.data)
        self._vote = Vote(job.device, job.ranks.world_size, repeats=job.layout.tensor)
        # Determined on the whole model: stages have the same blocks and the same names.
        self._blocks = repeated_blocks(recipe.model)
        self._plan = self._tensor_plan()

    def build(self) -> Engine:
        return self._whole_model_engine() if self._layout.pipeline == 1 else self._pipeline()

    def _whole_model_engine(self) -> WholeModelEngine:
        recipe = self._recipe
        module, inner = self._wrapped(recipe.model)
        return WholeModelEngine(
            module=module,
            inner=inner,
            optimizers=self._optimizers(list(inner.named_parameters())),
            loss_function=recipe.loss_function,
            share=self._share,
            microbatches=recipe.microbatches or 1,
            device=self._job.device,
            vote=self._vote,
        )

    def _pipeline(self) -> PipelineEngine:
        recipe, layout, strategy = self._recipe, self._layout, self._job.strategy
        mesh = self._required_mesh()
        count = layout.pipeline * STAGES_PER_RANK[strategy.schedule]
        stages = cut(recipe.model, count, recipe.split_points)
        shapes = {n: (t.shape, t.dtype) for s in stages for n, t in s.state_dict().items()}
        owners = {
            name: number % layout.pipeline
            for number, stage in enumerate(stages)
            for name in stage.state_dict()
        }
        numbers = stages_of(self._place.pipeline, layout.pipeline, strategy.schedule)
        wrapped = [self._wrapped(stages[number]) for number in numbers]
        inner = [module for _, module in wrapped]
        named = [pair for module in inner for pair in module.named_parameters()]
        averages = layout.data > 1 and not uses_fully_shard(strategy, layout)
        microbatches = recipe.microbatches or default_microbatches(layout.pipeline)
        return PipelineEngine(
            schedules=functools.partial(
                build_schedule,
                [module for module, _ in wrapped],
                numbers,
                schedule=strategy.schedule,
                layout=layout,
                microbatches=microbatches,
                mesh=mesh,
                device=self._job.device,
            ),
            loss_function=recipe.loss_function,
            inner=inner,
            optimizers=self._optimizers(named),
            share=self._share,
            microbatches=microbatches,
            layout=layout,
            is_first=0 in numbers,
            is_last=count - 1 in numbers,
            owners=owners,
            shapes=shapes,
            copies=self._copies_group() if averages else None,
            device=self._job.device,
            vote=self._vote,
        )

    def _wrapped(self, module: nn.Module) -> tuple[nn.Module, nn.Module]:
        """Return the module as it is to be called, and the one that knows its own names."""
        strategy, layout, device = self._job.strategy, self._layout, self._job.device
        if self._plan is not None:
            split_layers(module, self._plan, self._required_mesh())
        if uses_fully_shard(strategy, layout):
            shard(module, self._blocks, strategy, self._required_mesh())
            return module, module
        module = module.to(device)
        if layout.data == 1 or layout.pipeline > 1:
            return module, module
        copies = DistributedDataParallel(
            module,
            device_ids=[device] if device.type == "cuda" else None,
            process_group=self._copies_group(),
            init_sync=False,  # already done before the model was divided
            gradient_as_bucket_view=True,
        )
        return copies, module

    def _optimizers(self, named: Named) -> Optimizers:
        recipe, clip = self._recipe, None
        if recipe.clip_norm is not None:
            cut = self._layout.pipeline > 1
            stages = axis(self._required_mesh(), PIPELINE).get_group() if cut else None
            clip = GradientClip(recipe.clip_norm, stages)
        if self._job.strategy.sharing is Sharing.ZERO1 and self._layout.replicas > 1:
            group = self._copies_group() or dist.group.WORLD
            if group is not None:
                return OwnedOptimizers(named, recipe.factory, recipe.schedule, clip, group)
        return Optimizers(named, recipe.factory, recipe.schedule, clip)

    def _copies_group(self) -> dist.ProcessGroup | None:
        """Return the group of the ranks with the same weights, or None for that of all ranks."""
        return None if self._mesh is None else axis(self._mesh, REPLICAS).get_group()

    def _tensor_plan(self) -> TensorPlan | None:
        if self._layout.tensor == 1:
            return None
        if self._recipe.tensor_plan is not None:
            return expand_plan(self._recipe.model, self._recipe.tensor_plan)
        return find_plan(self._recipe.model, self._layout.tensor)

    def _required_mesh(self) -> DeviceMesh:
        if self._mesh is None:
            raise RuntimeError("A strategy that divides the model has a mesh.")
        return self._mesh
