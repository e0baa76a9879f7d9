"""The models of the benchmark and their inputs."""

from pathlib import Path

import torch


class Encoder(torch.nn.Module):
    """A transformer encoder of 6 layers, 384 wide."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(30_522, 384)
        layer = torch.nn.TransformerEncoderLayer(
            384, 12, 1536, activation="gelu", batch_first=True, dropout=0.0
        )
        self.layers = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.out = torch.nn.Linear(384, 10)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return ten probabilities."""
        return torch.softmax(self.out(self.layers(self.words(words)).mean(1)), -1)


def build_models(folder: Path) -> dict[str, Path]:
    """Write the MLP of the digits and the encoder as TorchScript."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        *(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128), torch.nn.ReLU()),
        *(torch.nn.Linear(128, 10), torch.nn.Softmax(-1)),
    ).eval()
    torch.backends.mha.set_fastpath_enabled(False)
    encoder = Encoder().eval()
    words = torch.randint(0, 30_522, (2, 64))
    with torch.inference_mode():
        traced = torch.jit.trace(encoder, words, check_trace=False)  # type: ignore[no-untyped-call]
    files = {"mlp": folder / "mlp.pt", "encoder": folder / "encoder.pt"}
    torch.jit.save(torch.jit.script(net), str(files["mlp"]))
    torch.jit.save(traced, str(files["encoder"]))
    return files


ROW = [float(number * 7 % 17) for number in range(64)]
WORDS = [number * 431 % 30_522 for number in range(64)]
