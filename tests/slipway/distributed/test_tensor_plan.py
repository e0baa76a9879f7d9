"""Which layers may be split: only those for which the parts provably add up to the whole."""

import pytest
import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.nn import functional

from slipway.distributed import StrategyNotPossible
from slipway.distributed.tensor_plan import expand_plan, find_plan
from tests.slipway.distributed.models import make_encoder, make_model

pytestmark = pytest.mark.ranks


def _kinds(plan: dict[str, object]) -> dict[str, str]:
    return {name: type(style).__name__.removesuffix("Parallel") for name, style in plan.items()}


def test_attention_and_linear_pairs_of_a_transformer_are_split() -> None:
    plan = find_plan(make_model(), 2)
    first = {n: k for n, k in _kinds(dict(plan.styles)).items() if n.startswith("blocks.0.")}
    assert first == {
        "blocks.0.attention.q": "Colwise",
        "blocks.0.attention.k": "Colwise",
        "blocks.0.attention.v": "Colwise",
        "blocks.0.attention.o": "Rowwise",
        "blocks.0.up": "Colwise",
        "blocks.0.down": "Rowwise",
    }
    assert ("blocks.3.attention", "num_heads") in plan.heads


def test_the_linear_pair_of_torchs_own_layer_is_split() -> None:
    kinds = _kinds(dict(find_plan(make_encoder(), 2).styles))
    assert kinds["layers.layers.0.linear1"] == "Colwise"
    assert kinds["layers.layers.0.linear2"] == "Rowwise"
    assert not any("self_attn" in name for name in kinds)


class _Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return output


def test_a_gated_pair_is_split_by_both_of_its_inputs() -> None:
    kinds = _kinds(dict(find_plan(_Gated(), 4).styles))
    assert kinds == {"gate": "Colwise", "up": "Colwise", "down": "Rowwise"}


class _Softmax(nn.Module):
    """A softmax over the split dimension would see a part of it: wrong without an error."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.b(self.a(x).softmax(-1))
        return output


class _Peeking(nn.Module):
    """The value between the pair is also used elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.a(x).relu()
        output: torch.Tensor = self.b(hidden) + hidden.sum()
        return output


class _Fused(nn.Module):
    """Looks like attention by its names, but mixes heads."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = (self.q(x) @ self.k(x).transpose(1, 2)).softmax(-1)
        output: torch.Tensor = self.o(weights @ self.v(x))
        return output


@pytest.mark.parametrize("model", [_Softmax(), _Peeking(), _Fused(), nn.Linear(4, 4)])
def test_what_would_be_wrong_in_parts_is_not_split(model: nn.Module) -> None:
    with pytest.raises(StrategyNotPossible, match="safely be split"):
        find_plan(model, 2)


def test_widths_and_heads_that_do_not_divide_are_not_split() -> None:
    with pytest.raises(StrategyNotPossible, match="divisible by 3"):
        find_plan(make_model(), 3)
    # Two heads cannot be divided by four, eight and sixteen outputs can.
    kinds = _kinds(dict(find_plan(make_model(), 4).styles))
    assert "blocks.0.up" in kinds
    assert "blocks.0.attention.q" not in kinds


def test_a_given_plan_may_use_patterns() -> None:
    plan = expand_plan(
        make_model(), {"blocks.*.up": ColwiseParallel(), "blocks.*.down": RowwiseParallel()}
    )
    assert sorted(plan.styles)[:2] == ["blocks.0.down", "blocks.0.up"]
    assert len(plan.styles) == 8
    with pytest.raises(StrategyNotPossible, match=r"blocks\.x"):
        expand_plan(make_model(), {"blocks.x": ColwiseParallel()})
