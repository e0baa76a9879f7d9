"""Cutting models into stages: where it is possible, where it is best, and what is told if not."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from slipway.distributed import StrategyNotPossible
from slipway.distributed.cuts import cut, possible_stages
from tests.slipway.distributed.models import make_encoder, make_model

pytestmark = pytest.mark.ranks


def _flow(stages: list[nn.Module], x: torch.Tensor) -> torch.Tensor:
    for stage in stages:
        x = stage(x)
    return x


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_stages_one_after_the_other_are_the_model(count: int) -> None:
    model = make_model()
    tokens = torch.randint(11, (3, 6))
    stages = cut(model, count, None)
    assert len(stages) == count
    assert torch.equal(_flow(stages, tokens), model(tokens))


def test_stages_keep_the_names_of_the_model_and_share_no_weight() -> None:
    model = make_model()
    names = [set(stage.state_dict()) for stage in cut(model, 3, None)]
    assert set.union(*names) == set(model.state_dict())
    assert sum(map(len, names)) == len(model.state_dict())


def test_the_heaviest_stage_is_as_light_as_possible() -> None:
    widths = [4, 4, 4, 64, 4, 4]
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))
    heaviest = max(sum(p.numel() for p in s.parameters()) for s in cut(model, 3, None))
    # The two wide layers, 320 and 260 weights, are never in one stage.
    assert heaviest == 320


def test_a_user_may_say_where_stages_begin() -> None:
    stages = cut(make_model(), 3, ["blocks.1", "norm"])
    assert "blocks.0.up.weight" in stages[0].state_dict()
    assert "blocks.3.up.weight" in stages[1].state_dict()
    assert set(stages[2].state_dict()) == {"norm.weight", "norm.bias", "head.weight", "head.bias"}


class _Optional(nn.Module):
    """Takes arguments that have defaults, and asks about them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = self.first(x)
        if mask is not None:
            x = x * mask
        output: torch.Tensor = self.second(x)
        return output


def test_arguments_left_at_their_defaults_are_settled() -> None:
    model, x = _Optional(), torch.randn(3, 4)
    assert torch.equal(_flow(cut(model, 2, None), x), model(x))


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.middle = nn.Linear(4, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.middle(self.embed(x)))
        return output


class _Skipping(nn.Module):
    """A value that skips a layer cannot be cut there."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.a(x)
        output: torch.Tensor = self.c(self.b(first)) + first
        return output


class _Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.b(self.a(x)) if x.sum() > 0 else self.a(x)
        return output


@pytest.mark.parametrize(
    ("model", "stages", "points", "message"),
    [
        (_Tied(), 2, ["head"], "tied weights"),
        (_Skipping(), 3, None, "2 stages with weights (a, b), not into 3"),
        (_Skipping(), 2, ["c"], 'cannot be cut before "c"'),
        (_Deciding(), 2, None, "cannot be followed"),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), 2, None, "1 stages with weights (0)"),
        (make_model(), 2, ["nowhere"], 'names "nowhere"'),
        (make_model(), 3, ["blocks.1"], "3 stages need 2 split_points"),
        (make_model(), 3, ["blocks.2", "blocks.1"], "not in the order of forward"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_what_cannot_be_cut_is_told_why(
    model: nn.Module, stages: int, points: list[str] | None, message: str
) -> None:
    with pytest.raises(StrategyNotPossible) as caught:
        cut(model, stages, points)
    assert message in caught.value.message
    assert caught.value.next_step


def test_the_number_of_possible_stages_is_known() -> None:
    assert possible_stages(make_model()) == 7
    assert possible_stages(make_encoder()) == 3
    assert possible_stages(_Deciding()) == 1
