"""Train a small transformer encoder, from scratch, to predict the section of a text.

python train.py                                  # on a laptop: writes sections.pt
slipway train train.py --watch                   # on Slipway, from examples/text
slipway train train.py --param register=sections # and registers the trained model

Without Slipway it needs only torch.
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
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Train a classifier of the sections of texts.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--texts", type=int, help="number of training texts (default: all)")
    parser.add_argument("--out", default="sections.pt", help="the file of the trained network")
    parser.add_argument("--register", metavar="MODEL", help="register the trained model in Slipway")
    return parser.parse_args()


def log(step: int, **metrics: float) -> None:
    """Log to the run of the job. Outside a job do nothing: the printed lines are enough."""
    if "SLIPWAY_WORKLOAD" in os.environ:
        import_module("mlflow").log_metrics(metrics, step=step)


def accuracy(sections: Sections, texts: list[Text]) -> float:
    """Return the share of texts whose section is predicted correctly."""
    predicted = sections.predict([text.text for text in texts])
    return sum(
        name == text.section for (name, _), text in zip(predicted, texts, strict=True)
    ) / len(texts)


def train_epoch(
    sections: Sections, optimizer: torch.optim.Optimizer, texts: list[Text], batch_size: int
) -> float:
    """Train one epoch and return the mean loss."""
    sections.network.train()
    total = 0.0
    order = torch.randperm(len(texts)).tolist()
    for start in range(0, len(order), batch_size):
        batch = [texts[index] for index in order[start : start + batch_size]]
        scores = sections.network(sections.ids_of([text.text for text in batch]))
        truth = torch.tensor([NAMES.index(text.section) for text in batch])
        loss = nn.functional.cross_entropy(scores, truth, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(texts)


def register(file: str, name: str, test: list[Text]) -> None:
    """Register the trained network with its code and golden predictions."""
    mlflow, pandas = import_module("mlflow"), import_module("pandas")
    infer: Any = import_module("mlflow.models").infer_signature
    inputs = pandas.DataFrame({"text": [text.text for text in test[:GOLDEN_TEXTS]]})
    predicted = Sections.load(file).predict(list(inputs["text"]))
    outputs = pandas.DataFrame(predicted, columns=["section", "confidence"])
    pins = [f"{package}=={version(package)}" for package in ("mlflow", "pandas", "torch")]
    logged = mlflow.pyfunc.log_model(
        name="model",
        python_model=str(HERE / "served.py"),
        code_paths=[str(HERE / "sections.py")],
        artifacts={"network": file},
        signature=infer(inputs, outputs),
        input_example=inputs[:2],
        pip_requirements=[pin.partition("+")[0] for pin in pins],
    )
    registered = import_module("slipway").register(
        logged, name, golden=(inputs, outputs), absolute_tolerance=1e-3
    )
    print(f"registered {name} version {registered.version}", flush=True)


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
    majority = max(sum(text.section == name for text in test) for name in NAMES) / len(test)
    print(f"accuracy on {len(test)} unseen texts: {reached:.4f} (always the same: {majority:.4f})")
    sections.save(arguments.out)
    print(f"saved {arguments.out}", flush=True)
    if arguments.register:
        register(arguments.out, arguments.register, test)


if __name__ == "__main__":
    main()
