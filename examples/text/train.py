"""Train a small transformer encoder, from scratch, to tell which section a text belongs to.

python train.py                                  # on a laptop: writes sections.pt
slipway train train.py --watch                   # by Slipway, from examples/text
slipway train train.py --param register=sections # and registers what was trained as a model

Without Slipway it needs torch alone.
"""

import argparse
import os
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sections import NAMES, Sections, Text, read_texts

HERE = Path(__file__).resolve().parent
GOLDEN_TEXTS = 8


def read_arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description="Tell the section of a text.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--texts", type=int, help="train with so many texts, instead of all")
    parser.add_argument("--out", default="sections.pt", help="the file of the trained network")
    parser.add_argument("--register", metavar="MODEL", help="register what is trained, in Slipway")
    return parser.parse_args()


def log(step: int, **metrics: float) -> None:
    """Log to the run of the job; elsewhere the lines that are printed are enough."""
    if "SLIPWAY_WORKLOAD" in os.environ:
        import_module("mlflow").log_metrics(metrics, step=step)


def accuracy(sections: Sections, texts: list[Text]) -> float:
    """Return the share of texts whose section is told."""
    told = sections.tell([one.text for one in texts])
    return sum(name == one.section for (name, _), one in zip(told, texts, strict=True)) / len(texts)


def train_epoch(
    sections: Sections, optimizer: torch.optim.Optimizer, texts: list[Text], batch_size: int
) -> float:
    """Train with every text once; return the mean loss."""
    sections.network.train()
    total = 0.0
    order = torch.randperm(len(texts)).tolist()
    for start in range(0, len(order), batch_size):
        batch = [texts[at] for at in order[start : start + batch_size]]
        scores = sections.network(sections.numbers_of([one.text for one in batch]))
        truth = torch.tensor([NAMES.index(one.section) for one in batch])
        loss = nn.functional.cross_entropy(scores, truth, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(texts)


def register(file: str, name: str, test: list[Text]) -> None:
    """Register the trained network with its code, and with answers it has to give again."""
    mlflow, pandas = import_module("mlflow"), import_module("pandas")
    infer: Any = import_module("mlflow.models").infer_signature
    asked = pandas.DataFrame({"text": [one.text for one in test[:GOLDEN_TEXTS]]})
    told = Sections.load(file).tell(list(asked["text"]))
    answers = pandas.DataFrame(told, columns=["section", "confidence"])
    pins = [f"{package}=={version(package)}" for package in ("mlflow", "pandas", "torch")]
    logged = mlflow.pyfunc.log_model(
        name="model",
        python_model=str(HERE / "served.py"),
        code_paths=[str(HERE / "sections.py")],
        artifacts={"network": file},
        signature=infer(asked, answers),
        input_example=asked[:2],
        pip_requirements=[pin.partition("+")[0] for pin in pins],
    )
    made = import_module("slipway").register(
        logged, name, golden=(asked, answers), absolute_tolerance=1e-3
    )
    print(f"registered {name} version {made.version}", flush=True)


def main() -> None:
    """Train, test and save."""
    arguments = read_arguments()
    torch.set_num_threads(1)  # so small a network loses more to synchronization than it gains
    torch.manual_seed(0)
    train, test = read_texts()
    train = train[: arguments.texts]
    sections = Sections.of(train)
    optimizer = torch.optim.AdamW(sections.network.parameters(), lr=arguments.lr, weight_decay=0.05)
    print(f"{len(train)} texts, {len(sections.known)} words, {len(NAMES)} sections", flush=True)
    for epoch in range(1, arguments.epochs + 1):
        loss = train_epoch(sections, optimizer, train, arguments.batch_size)
        reached = accuracy(sections, test)
        print(f"epoch {epoch} loss {loss:.4f} accuracy {reached:.4f}", flush=True)
        log(epoch, loss=loss, accuracy=reached)
    most = max(sum(one.section == name for one in test) for name in NAMES) / len(test)
    print(f"accuracy on {len(test)} unseen texts: {reached:.4f} (always the same: {most:.4f})")
    sections.save(arguments.out)
    print(f"saved {arguments.out}", flush=True)
    if arguments.register:
        register(arguments.out, arguments.register, test)


if __name__ == "__main__":
    main()
