"""The small transformer that every strategy must train exactly as one process does."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, CONTEXT, WIDTH, HEADS, BLOCKS, CLASSES = 11, 6, 8, 2, 4, 5
SAMPLES, BATCH, STEPS = 96, 16, 10


class Attention(nn.Module):
    """Self-attention over (batch, position, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.q = nn.Linear(WIDTH, WIDTH)
        self.k = nn.Linear(WIDTH, WIDTH)
        self.v = nn.Linear(WIDTH, WIDTH)
        self.o = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, positions, _ = x.shape
        heads = [
            part(x).view(batch, positions, self.num_heads, -1).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        ]
        mixed = functional.scaled_dot_product_attention(*heads)
        joined = mixed.transpose(1, 2).reshape(batch, positions, -1)
        output: torch.Tensor = self.o(joined)
        return output


class Block(nn.Module):
    """One layer of the transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        output: torch.Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return output


class Transformer(nn.Module):
    """Classifies sequences of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.1)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        scores: torch.Tensor = self.head(self.norm(x).mean(1))
        return scores


def make_model() -> Transformer:
    """Return the model, always with the same weights, in float64."""
    torch.manual_seed(1)
    return Transformer().double()


class Encoder(nn.Module):
    """The same task for torch's own transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, BLOCKS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.layers(self.embed(tokens)).mean(1))
        return scores


def make_encoder() -> Encoder:
    """Return a model of torch's own layers, always with the same weights, in float64."""
    torch.manual_seed(1)
    return Encoder().double()


class Mean(nn.Module):
    """The mean over positions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)


def make_in_place() -> nn.Sequential:
    """Return a chain of single layers and functions that write in place, in float64."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(inplace=True),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(inplace=True),
        Mean(),
        nn.Linear(WIDTH, CLASSES),
    ).double()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "transformer": make_model,
    "encoder": make_encoder,
    "in_place": make_in_place,
}


def make_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW, with an epsilon so large that the scale of gradients is not divided away."""
    return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.05, eps=1e-2)


def make_schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """Return a schedule that changes the learning rate in every step."""
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)


def make_data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens (SAMPLES, CONTEXT) and classes (SAMPLES,) that depend on them."""
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(VOCABULARY, (SAMPLES, CONTEXT), generator=generator)
    return tokens, tokens.sum(1) % CLASSES


def make_noisy_data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return more data, whose classes follow the first token three times in four.

    The rest is chance, so the loss settles well above zero: there it can be compared.
    """
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(VOCABULARY, (768, CONTEXT), generator=generator)
    chance = torch.randint(CLASSES, (768,), generator=generator)
    follows = torch.rand(768, generator=generator) < 0.75
    return tokens, torch.where(follows, tokens[:, 0] % CLASSES, chance)


def batches(steps: int, samples: int, size: int) -> list[torch.Tensor]:
    """Return the indices of the global batches that `shard(epochs=...)` draws with seed 0."""
    tensors: list[torch.Tensor] = []
    epoch = 0
    while len(tensors) < steps:
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(epoch))
        tensors += torch.split(order, size)
        epoch += 1
    return tensors[:steps]


def train_alone(
    steps: int = STEPS,
    *,
    model: nn.Module | None = None,
    data: tuple[torch.Tensor, torch.Tensor] | None = None,
    size: int = BATCH,
    schedule: bool = False,
    clip_norm: float | None = None,
) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Return weights and losses of plain torch in one process: what all else is compared with."""
    model = model or make_model()
    optimizer = make_optimizer(list(model.parameters()))
    moved = make_schedule(optimizer) if schedule else None
    tokens, classes = data or make_data()
    losses = []
    for rows in batches(steps, len(tokens), size):
        loss = functional.cross_entropy(model(tokens[rows]), classes[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        if moved is not None:
            moved.step()
        losses.append(loss.item())
    return {name: value.detach() for name, value in model.state_dict().items()}, losses


def difference(state: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> float:
    """Return the largest difference of any weight; both must hold the same names."""
    assert state.keys() == reference.keys(), state.keys() ^ reference.keys()
    return max((state[name] - value).abs().max().item() for name, value in reference.items())
