"""Cutting a model into consecutive stages for a pipeline.

The forward function is followed once, symbolically. It can be cut wherever exactly one value
flows on: before block 3 of a transformer, say. Stages keep the names of the model's parameters.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from slipway.distributed.errors import StrategyNotPossible

_NEXT_STEP = (
    "Make the model an nn.Sequential of its stages, or a module whose forward() passes one tensor "
    "through a list of blocks; or choose another strategy."
)


@dataclass(frozen=True, slots=True)
class CutSegment:
    """Run of operations between two neighbouring cut points.

    `name` is the submodule it begins with, `weights` the number of parameters in it.
    """

    name: str
    nodes: tuple[fx.Node, ...]
    weights: int


class _Tracer(fx.Tracer):
    """Follows calls into sequences and into the modules that contain a place to cut."""

    def __init__(self, opened: frozenset[str]) -> None:
        super().__init__()
        self._opened = opened

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not isinstance(m, nn.Sequential) and module_qualified_name not in self._opened


def cut(model: nn.Module, stages: int, split_points: Sequence[str] | None) -> list[nn.Module]:
    """Return `stages` modules that, called one after the other, are the model.

    `split_points` names the submodules that begin a stage (the first excepted). Without it the cuts
    are placed so that the stage with the most weights has as few as possible. The stages share the
    model's parameters and keep their names. Raises StrategyNotPossible when the model cannot be cut
    there, or not into so many stages.
    """
    graph = _follow(model, split_points or ())
    cut_segments = _pieces(graph, model)
    given = split_points is not None
    groups = (
        _split_at(cut_segments, split_points or (), stages)
        if given
        else _balance(cut_segments, stages)
    )
    modules: list[nn.Module] = []
    for number, group in enumerate(groups):
        nodes = [node for piece in group for node in piece.nodes]
        before = [node for earlier in groups[:number] for piece in earlier for node in piece.nodes]
        modules.append(fx.GraphModule(model, _stage_graph(graph, before, nodes)))
    _check_untied(modules)
    return modules


def _follow(model: nn.Module, split_points: Sequence[str]) -> fx.Graph:
    for name in split_points:
        if name not in dict(model.named_modules()):
            raise StrategyNotPossible(
                f'split_points names "{name}", which is no part of the model.',
                next_step="Use the names that model.named_modules() gives, such as blocks.2.",
            )
    opened = {
        name.rsplit(".", n)[0] for name in split_points for n in range(1, name.count(".") + 1)
    }
    parameters = inspect.signature(model.forward).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    try:
        graph = _Tracer(frozenset(opened)).trace(model, concrete_args=defaults or None)
    except Exception as error:
        raise StrategyNotPossible(
            f"The forward() of {type(model).__name__} cannot be followed to cut it into stages: "
            f"{error}",
            next_step=_NEXT_STEP,
        ) from error
    # Arguments with default values are constants. Their remaining nodes only assert that.
    for node in reversed(graph.nodes):
        check = node.op == "call_function" and "assert" in getattr(node.target, "__name__", "")
        settled = node.op == "placeholder" and _is_default(str(node.target), defaults)
        if (check or settled) and not node.users:
            graph.erase_node(node)
    return graph


def _is_default(target: str, defaults: Mapping[str, Any]) -> bool:
    """Return whether a traced argument is a default. The tracer appends a number to its name."""
    return target in defaults or re.sub(r"_\d+\Z", "", target) in defaults


def _pieces(graph: fx.Graph, model: nn.Module) -> list[CutSegment]:
    """Cut the graph at every place where one value flows on into a submodule with weights.

    Never before another one: a function that works in place must not get what was received.
    """
    nodes = [node for node in graph.nodes if node.op != "output"]
    order = {node: number for number, node in enumerate(graph.nodes)}
    starts = [0]
    for number, node in enumerate(nodes):
        begins = node.op == "call_module" and number > 0 and _weights(node, model) > 0
        if begins and len(_flowing(nodes, number, order)) == 1:
            starts.append(number)
    # Inputs alone are not a piece: they belong to the first module that uses them.
    first_work = next((n for n, node in enumerate(nodes) if node.op == "call_module"), 0)
    starts = [0, *(start for start in starts[1:] if start > first_work)]
    cut_segments = []
    for start, end in zip(starts, [*starts[1:], len(nodes)], strict=True):
        inside = tuple(nodes[start:end])
        named = next((str(node.target) for node in inside if node.op == "call_module"), "")
        cut_segments.append(
            CutSegment(named, inside, sum(_weights(node, model) for node in inside))
        )
    return cut_segments


def _flowing(nodes: list[fx.Node], number: int, order: dict[fx.Node, int]) -> set[fx.Node]:
    """Return the values made before node `number` that are used at or after it."""
    return {
        node
        for node in nodes[:number]
        if node.op != "get_attr" and any(order[user] >= number for user in node.users)
    }


def _weights(node: fx.Node, model: nn.Module) -> int:
    if node.op == "call_module":
        module = model.get_submodule(str(node.target))
        return sum(parameter.numel() for parameter in module.parameters())
    if node.op == "get_attr":
        owner, _, name = str(node.target).rpartition(".")
        value = getattr(model.get_submodule(owner), name)
        return value.numel() if isinstance(value, nn.Parameter) else 0
    return 0


def _balance(pieces: list[CutSegment], stages: int) -> list[list[CutSegment]]:
    """Divide the pieces into runs, the heaviest as light as possible, each with weights."""
    if sum(1 for piece in pieces if piece.weights) < stages:
        names = ", ".join(piece.name for piece in pieces if piece.weights) or "none"
        raise StrategyNotPossible(
            f"The model can be cut into {sum(1 for p in pieces if p.weights)} stages with weights "
            f"({names}), not into {stages}.",
            next_step=f"Use fewer stages. {_NEXT_STEP}",
        )
    sums = [0]
    for piece in pieces:
        sums.append(sums[-1] + piece.weights)
    count = len(pieces)
    # best[n]: for the pieces from n on, (weights of the heaviest stage, ends of the stages)
    best: list[tuple[int, tuple[int, ...]] | None] = [None] * count + [(0, ())]
    for left in range(1, stages + 1):
        previous, best = best, [None] * (count + 1)
        for start in range(count - left, -1, -1):
            options = [
                (max(sums[end] - sums[start], rest[0]), (end, *rest[1]))
                for end in range(start + 1, count + 1)
                if (rest := previous[end]) is not None
                and (left > 1 or end == count)
                and sums[end] > sums[start]
            ]
            best[start] = min(options, default=None)
    chosen = best[0]
    if chosen is None:
        raise StrategyNotPossible(
            f"No {stages} stages with weights can be made of the model's {count} pieces.",
            next_step=f"Use fewer stages. {_NEXT_STEP}",
        )
    ends = chosen[1]
    return [pieces[start:end] for start, end in zip((0, *ends[:-1]), ends, strict=True)]


def _split_at(
    pieces: list[CutSegment], names: Sequence[str], stages: int
) -> list[list[CutSegment]]:
    if len(names) != stages - 1:
        raise StrategyNotPossible(
            f"{stages} stages need {stages - 1} split_points; {len(names)} are given.",
            next_step="Name the submodule that begins each stage after the first.",
        )
    groups: list[list[CutSegment]] = [[]]
    waiting = list(names)
    for number, piece in enumerate(pieces):
        if waiting and number and piece.name == waiting[0]:
            waiting.pop(0)
            groups.append([])
        groups[-1].append(piece)
    if waiting:
        possible = ", ".join(piece.name for piece in pieces[1:]) or "nowhere"
        raise StrategyNotPossible(
            f'The model cannot be cut before "{waiting[0]}": more than one value flows there, or '
            "the split_points are not in the order of forward().",
            next_step=f"It can be cut before: {possible}.",
        )
    return groups


def _stage_graph(graph: fx.Graph, before: list[fx.Node], nodes: list[fx.Node]) -> fx.Graph:
    """Return the graph of one stage: from the value that flows in to the one that flows out."""
    stage = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inside, earlier = set(nodes), set(before)
    incoming = next((n for n in before if n.op != "get_attr" and inside & set(n.users)), None)
    if incoming is not None:
        copies[incoming] = stage.placeholder("flow")

    def copied(node: fx.Node) -> fx.Node:
        if node not in copies:
            # Only attributes of the model are copied. Other values come from the stage before.
            copies[node] = stage.node_copy(node, copied)
        return copies[node]

    for node in nodes:
        copies[node] = stage.node_copy(node, copied)
    end = next(node for node in graph.nodes if node.op == "output")
    later = [
        node
        for node in nodes
        if node.op != "get_attr" and any(u not in inside and u not in earlier for u in node.users)
    ]
    final = end in {user for node in later for user in node.users}
    stage.output(torch.fx.node.map_arg(end.args[0], copied) if final else copies[later[-1]])
    stage.lint()
    return stage


def _check_untied(stages: list[nn.Module]) -> None:
    owner: dict[nn.Parameter, int] = {}
    for number, stage in enumerate(stages):
        for name, parameter in stage.named_parameters():
            if owner.setdefault(parameter, number) != number:
                raise StrategyNotPossible(
                    f'"{name}" is used in stages {owner[parameter]} and {number}: tied weights '
                    "cannot lie on two ranks of a pipeline.",
                    next_step="Give split_points that keep the tied modules in one stage, untie "
                    "them, or choose another strategy.",
                )


def possible_stages(model: nn.Module) -> int:
    """Return the largest number of stages with weights, or 1 if the model cannot be cut."""
    try:
        return max(1, sum(1 for piece in _pieces(_follow(model, ()), model) if piece.weights))
    except StrategyNotPossible:
        return 1
