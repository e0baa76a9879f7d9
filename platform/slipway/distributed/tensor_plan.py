"""Layers that tensor parallelism may split, found by inspection and verified before use.

A pair of linear layers y = B(f(A(x))) with f element by element can be divided over ranks: A by
its outputs, B by its inputs, and one sum over ranks gives y (Shoeybi et al. 2019, "Megatron-LM",
§3). The same holds for attention when whole heads stay together. Element-wise pairs are found in
the traced forward function. Attention is tried out, part by part, on a copy.
"""

import copy
import fnmatch
import logging
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import fx, nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from slipway.distributed.errors import StrategyNotPossible

logger = logging.getLogger(__name__)

_ELEMENTWISE_MODULES = (
    nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Dropout, nn.Identity, nn.ELU,
    nn.LeakyReLU, nn.Softplus, nn.Mish, nn.Hardswish, nn.Hardsigmoid, nn.SELU, nn.CELU,
)  # fmt: skip
_functional = nn.functional
_ELEMENTWISE_FUNCTIONS: frozenset[Callable[..., object]] = frozenset(
    {
        _functional.relu, _functional.gelu, _functional.silu, _functional.tanh,
        _functional.sigmoid, _functional.dropout, _functional.leaky_relu, _functional.elu,
        _functional.softplus, _functional.mish, torch.relu, torch.tanh, torch.sigmoid, torch.mul,
        operator.mul,
    }
)  # fmt: skip
_ELEMENTWISE_METHODS = frozenset({"relu", "tanh", "sigmoid", "mul", "contiguous"})
# Names of the projections of attention modules, and of their attributes with a number of heads.
_ATTENTION = (
    ("q", "k", "v", "o"),
    ("q", "k", "v", "out"),
    ("q", "k", "v", "proj"),
    ("q_proj", "k_proj", "v_proj", "o_proj"),
    ("q_proj", "k_proj", "v_proj", "out_proj"),
    ("query", "key", "value", "out"),
    ("query", "key", "value", "output"),
    ("wq", "wk", "wv", "wo"),
    ("to_q", "to_k", "to_v", "to_out"),
)
_HEAD_COUNTS = (
    "heads", "num_heads", "n_heads", "n_head", "nhead", "num_attention_heads",
    "kv_heads", "num_kv_heads", "n_kv_heads", "num_key_value_heads",
)  # fmt: skip


@dataclass(slots=True)
class TensorPlan:
    """Plan of a split: a style for each linear layer, and the head counts to divide."""

    styles: dict[str, ParallelStyle] = field(default_factory=dict)
    heads: list[tuple[str, str]] = field(default_factory=list)

    def restricted_to(self, names: set[str]) -> "TensorPlan":
        """Return the part of the plan about the submodules `names`."""
        return TensorPlan(
            styles={name: style for name, style in self.styles.items() if name in names},
            heads=[pair for pair in self.heads if pair[0] in names],
        )


def expand_plan(model: nn.Module, plan: Mapping[str, ParallelStyle]) -> TensorPlan:
    """Return the user's plan with its patterns (`blocks.*.up`) replaced by what they match."""
    styles: dict[str, ParallelStyle] = {}
    names = [name for name, _ in model.named_modules()]
    for pattern, style in plan.items():
        matched = fnmatch.filter(names, pattern)
        if not matched:
            raise StrategyNotPossible(
                f'tensor_plan names "{pattern}", which matches no part of the model.',
                next_step="Use the names that model.named_modules() gives; * stands for any part.",
            )
        styles |= dict.fromkeys(matched, style)
    return TensorPlan(styles=styles)


def find_plan(model: nn.Module, size: int) -> TensorPlan:
    """Return a plan to split what can safely be split over `size` ranks.

    Raises StrategyNotPossible when that is nothing.
    """
    plan = TensorPlan()
    proven: dict[object, bool] = {}
    for name, parent in model.named_modules():
        linears = {n: m for n, m in parent.named_children() if type(m) is nn.Linear}
        prefix = f"{name}." if name else ""
        attention = _attention(parent, linears, size, proven) if len(linears) >= 4 else None
        if attention is not None:
            *columns, row = attention
            plan.styles |= {prefix + column: ColwiseParallel() for column in columns}
            plan.styles[prefix + row] = RowwiseParallel()
            plan.heads += [(name, count) for count in _head_counts(parent)]
            linears = {n: m for n, m in linears.items() if n not in attention}
        for columns, row in _pairs(parent, linears):
            if linears[row].in_features % size == 0:
                plan.styles |= {prefix + column: ColwiseParallel() for column in columns}
                plan.styles[prefix + row] = RowwiseParallel()
    if not plan.styles:
        raise StrategyNotPossible(
            f"No layer of {type(model).__name__} can safely be split over {size} ranks: there is "
            "no pair of nn.Linear layers with element-wise functions between them and a width "
            f"divisible by {size}, and no attention with separate projections.",
            next_step="Give prepare() a tensor_plan, or choose zero3.",
        )
    logger.info("Tensor parallelism splits %d linear layers over %d ranks.", len(plan.styles), size)
    return plan


def _pairs(parent: nn.Module, linears: Mapping[str, nn.Linear]) -> Iterator[tuple[list[str], str]]:
    """Yield (layers to split by outputs, layer to split by inputs) among the children."""
    if isinstance(parent, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        if parent.activation in _ELEMENTWISE_FUNCTIONS or isinstance(
            parent.activation, _ELEMENTWISE_MODULES
        ):
            yield ["linear1"], "linear2"
        return
    if len(linears) < 2:
        return
    try:
        graph = _ShallowTracer().trace(parent)
    except Exception as error:  # noqa: BLE001 - the model's own code runs here
        logger.debug("%s cannot be followed: %s", type(parent).__name__, error)
        return
    calls: dict[str, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "call_module" and node.target in linears:
            calls.setdefault(str(node.target), []).append(node)
    used: set[str] = set()
    for row, nodes in calls.items():
        columns = _columns(nodes[0], linears, parent) if len(nodes) == 1 else None
        if not columns or {row, *columns} & used or any(len(calls[c]) > 1 for c in columns):
            continue
        used |= {row, *columns}
        yield sorted(columns), row


class _ShallowTracer(fx.Tracer):
    """Follows one module's own forward function, none of its children's."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _columns(row: fx.Node, linears: Mapping[str, nn.Linear], parent: nn.Module) -> set[str] | None:
    """Return the linear layers whose outputs alone reach `row`, element by element."""
    columns: set[str] = set()
    inside, requested = {row}, set(row.all_input_nodes)
    for node in reversed(row.graph.nodes):
        if node not in requested:
            continue
        if any(user not in inside for user in node.users):
            return None  # its output is also used elsewhere, where it would be incomplete
        inside.add(node)
        if node.op == "call_module" and node.target in linears:
            columns.add(str(node.target))
        elif _is_elementwise(node, parent):
            requested |= set(node.all_input_nodes)
        else:
            return None
    return columns


def _is_elementwise(node: fx.Node, parent: nn.Module) -> bool:
    if node.op == "call_module":
        return isinstance(parent.get_submodule(str(node.target)), _ELEMENTWISE_MODULES)
    if node.op == "call_function":
        return node.target in _ELEMENTWISE_FUNCTIONS
    return node.op == "call_method" and node.target in _ELEMENTWISE_METHODS


def _attention(
    parent: nn.Module,
    linears: Mapping[str, nn.Linear],
    size: int,
    proven: dict[object, bool],
) -> tuple[str, ...] | None:
    """Return the names of the projections of an attention module that may be split."""
    names = next((names for names in _ATTENTION if set(names) <= linears.keys()), None)
    if names is None:
        return None
    counts = _head_counts(parent)
    widths = [linears[name].out_features for name in names[:3]] + [linears[names[3]].in_features]
    if any(n % size for n in (*widths, *(getattr(parent, count) for count in counts))):
        return None
    # Layers of a stack are alike: try one of them.
    look = (type(parent), tuple(widths), tuple(getattr(parent, count) for count in counts), size)
    if look not in proven:
        proven[look] = _splits_exactly(parent, names, size)
        if not proven[look]:
            logger.info("%s looks like attention, but heads cannot be divided.", type(parent))
    return names if proven[look] else None


def _head_counts(parent: nn.Module) -> list[str]:
    return [name for name in _HEAD_COUNTS if isinstance(parent.__dict__.get(name), int)]


def _splits_exactly(parent: nn.Module, names: tuple[str, ...], size: int) -> bool:
    """Return whether the parts of a copy, computed one after the other, add up to the whole."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        original = copy.deepcopy(parent).to("cpu", torch.float64).eval()
        features = original.get_submodule(names[0]).in_features
        sample = torch.randn(2, 6, int(features), dtype=torch.float64)  # type: ignore[arg-type]
        try:
            expected = original(sample)
            total = sum(_part(original, names, size, n)(sample) for n in range(size))
        except Exception as error:  # noqa: BLE001 - the model's own code runs here
            logger.debug("%s cannot be tried out: %s", type(parent).__name__, error)
            return False
        return isinstance(expected, torch.Tensor) and torch.allclose(
            torch.as_tensor(total), expected, rtol=1e-9, atol=1e-9
        )


def _part(original: nn.Module, names: tuple[str, ...], size: int, number: int) -> nn.Module:
    part = copy.deepcopy(original)
    for name in names[:3]:
        linear = part.get_submodule(name)
        for parameter in linear.parameters():
            parameter.data = parameter.chunk(size)[number].clone()
    for kind, parameter in part.get_submodule(names[3]).named_parameters():
        # Each part adds its share of the bias, so that it is counted once.
        parameter.data = (
            parameter.chunk(size, dim=1)[number].clone() if kind == "weight" else parameter / size
        )
    for count in _head_counts(part):
        setattr(part, count, getattr(part, count) // size)
    return part
