"""What ranks do in tests. Arguments and results are plain JSON."""

import os
import runpy
import signal
import sys
import time
import weakref
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn import functional

import slipway.distributed as dist
from tests.slipway.distributed.models import (
    BATCH,
    MODELS,
    STEPS,
    difference,
    make_data,
    make_model,
    make_noisy_data,
    make_optimizer,
    make_schedule,
    train_alone,
)


def train(
    strategy: str | None = None,
    microbatches: int | None = None,
    schedule: bool = False,
    model: str = "transformer",
    clip_norm: float | None = None,
) -> dict[str, Any]:
    """Train the small transformer and compare it with plain torch in one process."""
    make = MODELS[model]
    with dist.prepare(
        make(),
        make_optimizer,
        functional.cross_entropy,
        strategy=strategy,
        schedule=make_schedule if schedule else None,
        microbatches=microbatches,
        clip_norm=clip_norm,
    ) as trainer:
        losses = []
        for batch in trainer.shard(make_data(), BATCH, epochs=100):
            losses.append(trainer.step(batch).item())
            if trainer.steps == STEPS:
                break
        state = trainer.state_dict()
        result: dict[str, Any] = {"strategy": trainer.strategy, "reason": trainer.reason}
        if trainer.is_main:
            reference, alone = train_alone(model=make(), schedule=schedule, clip_norm=clip_norm)
            result["difference"] = difference(state, reference)
            result["loss_difference"] = max(abs(a - b) for a, b in zip(losses, alone, strict=True))
        return result


def train_longer(strategy: str, epochs: int) -> dict[str, Any]:
    """Train until the loss settles; rank 0 returns it over all data, and one process's."""
    data = make_noisy_data()
    with dist.prepare(
        make_model(), make_optimizer, functional.cross_entropy, strategy=strategy
    ) as trainer:
        for batch in trainer.shard(data, 2 * BATCH, epochs=epochs):
            trainer.step(batch)
        state = trainer.state_dict()
        if not trainer.is_main:
            return {"steps": trainer.steps}
    reference, _ = train_alone(epochs * len(data[0]) // (2 * BATCH), data=data, size=2 * BATCH)
    losses = []
    for weights in (state, reference):
        model = make_model()
        model.load_state_dict(weights)
        with torch.no_grad():
            losses.append(functional.cross_entropy(model(data[0]), data[1]).item())
    return {"steps": trainer.steps, "loss": losses[0], "reference": losses[1]}


def lose_a_worker(strategy: str, epochs: int, victim: int, at_step: int) -> dict[str, Any]:
    """Train while one rank is killed without a word."""
    with dist.prepare(
        make_model(), make_optimizer, functional.cross_entropy, strategy=strategy, timeout_s=5
    ) as trainer:
        loss = None
        for batch in trainer.shard(make_data(), BATCH, epochs=epochs):
            if trainer.rank == victim and trainer.steps == at_step:
                os.kill(os.getpid(), signal.SIGKILL)
            loss = trainer.step(batch).item()
        return {
            "steps": trainer.steps,
            "loss": loss,
            "keys": len(trainer.state_dict()),
            "named": len(make_model().state_dict()),
        }


def save_and_go_on(strategy: str | None, folder: str, at_step: int, more: int) -> dict[str, Any]:
    """Save at a step, then train on while the checkpoint is being written."""
    with prepared(strategy, folder) as trainer:
        started = trainer.resume()
        for batch in trainer.shard(make_data(), BATCH, epochs=100):
            trainer.step(batch)
            if trainer.steps == at_step:
                trainer.save(metric=1.0)
            if trainer.steps == at_step + more:
                break
        return {"started": started, "steps": trainer.steps}


def resume_and_finish(strategy: str | None, folder: str) -> dict[str, Any]:
    """Go on from the newest checkpoint and compare with a run that was never interrupted."""
    with prepared(strategy, folder) as trainer:
        started = trainer.resume()
        for batch in trainer.shard(make_data(), BATCH, epochs=100):
            trainer.step(batch)
            if trainer.steps == STEPS:
                break
        state = trainer.state_dict()
        result: dict[str, Any] = {"started": started, "steps": trainer.steps}
        if trainer.is_main:
            result["difference"] = difference(state, train_alone(schedule=True)[0])
        return result


def prepared(strategy: str | None, folder: str | None, **wishes: Any) -> dist.Trainer:
    """Return a trainer of the small transformer with a schedule and checkpoints in a folder."""
    return dist.prepare(
        make_model(),
        make_optimizer,
        functional.cross_entropy,
        strategy=strategy,
        schedule=make_schedule,
        checkpoints=dist.Checkpoints(folder, **wishes),
        timeout_s=20,
    )


def save_by_itself(folder: str, steps: int, **keep: Any) -> dict[str, Any]:
    """Let the trainer save every second step, then once more with each metric given."""
    metrics = keep.pop("metrics", [])
    wishes = {"every_steps": 2, "keep": dist.Retention(**keep)}
    with prepared("ddp", folder, **wishes) as trainer:
        for batch in trainer.shard(make_data(), BATCH, epochs=100):
            trainer.step(batch)
            if metrics:
                trainer.save(metric=metrics.pop(0), wait=True)
            if trainer.steps == steps:
                break
        return {"steps": trainer.steps}


def die_while_saving(strategy: str, folder: str, victim: int) -> None:
    """Save a whole checkpoint at step 3, then die while that of step 6 is on its way."""
    with prepared(strategy, folder) as trainer:
        for batch in trainer.shard(make_data(), BATCH, epochs=100):
            trainer.step(batch)
            if trainer.steps == 3:
                trainer.save(wait=True)
            if trainer.steps == 6:
                trainer.save()
                if trainer.rank == victim:
                    os.kill(os.getpid(), signal.SIGKILL)


def stop_when_asked(strategy: str, folder: str | None, stopped_rank: int, at_step: int) -> None:
    """Train for ever; one rank is sent SIGTERM."""
    with dist.prepare(
        make_model(),
        make_optimizer,
        functional.cross_entropy,
        strategy=strategy,
        schedule=make_schedule,
        checkpoints=folder,
        timeout_s=20,
    ) as trainer:
        for batch in trainer.shard(make_data(), BATCH, epochs=10**6):
            trainer.step(batch)
            if trainer.rank == stopped_rank and trainer.steps == at_step:
                os.kill(os.getpid(), signal.SIGTERM)


def resume_another_model(folder: str) -> str:
    """Resume with a wider model than was saved; return what the script is told."""
    model = make_model()
    model.head = torch.nn.Linear(model.head.in_features, 9).double()
    with dist.prepare(
        model, make_optimizer, functional.cross_entropy, checkpoints=folder, timeout_s=20
    ) as trainer:
        try:
            trainer.resume()
        except dist.CheckpointError as error:
            return str(error)
        return ""


def save_where_nothing_can_be_written(folder: str) -> str:
    """Save into a path that is a file; return what every rank is told."""
    with prepared("ddp", folder) as trainer:
        for batch in trainer.shard(make_data(), BATCH):
            trainer.step(batch)
            break
        try:
            trainer.save(wait=True)
        except dist.CheckpointError as error:
            return str(error)
        return ""


def lose_a_peer(strategy: str, victim: int, how: int) -> dict[str, Any]:
    """One rank dies or freezes amid training; return what the others are told, and how soon."""
    trainer = dist.prepare(
        make_model(), make_optimizer, functional.cross_entropy, strategy=strategy, timeout_s=3
    )
    started = time.monotonic()
    try:
        for batch in trainer.shard(make_data(), BATCH, epochs=10**6):
            if trainer.rank == victim and trainer.steps == 3:
                os.kill(os.getpid(), how)
            started = time.monotonic()
            trainer.step(batch)
    except dist.PeerLost as error:
        return {"told": str(error), "after_s": time.monotonic() - started}
    return {}


def held(strategy: str) -> list[float]:
    """Return which share of the weights and of the optimizer state this rank holds at rest."""
    with prepared(strategy, None) as trainer:
        for batch in trainer.shard(make_data(), BATCH):
            trainer.step(batch)
            break
        tensors = trainer._engine.snapshot().tensors
        parts = {"model.": 0, "optim.": 0}
        for name, tensor in tensors.items():
            if tensor.dim():
                local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
                parts[name[:6]] += local.numel()
        whole = sum(parameter.numel() for parameter in make_model().parameters())
        return [parts["model."] / whole, parts["optim."] / (2 * whole)]


def save_in_the_given_folder() -> None:
    """Save once where the environment says."""
    with prepared("zero3", None) as trainer:
        for batch in trainer.shard(make_data(), BATCH):
            trainer.step(batch)
            if trainer.steps == 2:
                trainer.save(wait=True)
                break


def evaluate(strategy: str) -> dict[str, Any]:
    """Evaluate amid training; rank 0 compares with one process, at that step and at the end."""
    tokens, classes = make_data()
    samples = len(tokens) if "pipeline" in strategy else len(tokens) - 7
    measured = tokens[:samples], classes[:samples]
    with prepared(strategy, None) as trainer:
        loss = accuracy = float("nan")
        for batch in trainer.shard(make_data(), BATCH, epochs=100):
            trainer.step(batch)
            if trainer.steps == 3:
                loss = trainer.evaluate(measured, BATCH)
                accuracy = trainer.evaluate(measured, BATCH, metric=share_correct)
            if trainer.steps == 5:
                break
        state = trainer.state_dict()
        result: dict[str, Any] = {"loss": loss, "accuracy": accuracy}
        if trainer.is_main:
            model = make_model()
            model.load_state_dict(train_alone(3, schedule=True)[0])
            with torch.no_grad():
                scores = model(measured[0])
            result["loss_alone"] = functional.cross_entropy(scores, measured[1]).item()
            result["accuracy_alone"] = share_correct(scores, measured[1]).item()
            result["difference"] = difference(state, train_alone(5, schedule=True)[0])
        return result


def share_correct(scores: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Return which share of the samples got the right class."""
    return (scores.argmax(1) == classes).double().mean()


def run_script(path: str, arguments: list[str], folder: str, *, alone: bool = False) -> None:
    """Run a script as `python script.py arguments` does; `alone` means without a launcher."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        if alone:
            del os.environ[name]
    os.chdir(folder)
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")


def imported_packages() -> list[str]:
    """Return the packages that a rank has loaded with slipway.distributed and what it needs."""
    return sorted({name.partition(".")[0] for name in sys.modules})


def let_go(strategy: str) -> bool:
    """Close a trainer that is still held; return whether what averages gradients is gone."""
    trainer = prepared(strategy, None)
    for batch in trainer.shard(make_data(), BATCH):
        trainer.step(batch)
        break
    averages = weakref.ref(trainer._engine._module)  # type: ignore[attr-defined]
    trainer.close()
    return averages() is None


def run_page(script: str) -> dict[str, int]:
    """Run code of a page for readers, who bring a model and data; return what it arrived at."""
    torch.manual_seed(0)
    inputs, classes = torch.randn(512, 4), torch.randint(3, (512,))
    names: dict[str, Any] = {"model": torch.nn.Linear(4, 3), "dataset": (inputs, classes)}
    names["validation"] = torch.utils.data.TensorDataset(inputs[:300], classes[:300])
    exec(compile(script, "page", "exec"), names)  # noqa: S102 - the page is ours
    return {"steps": names["trainer"].steps, "weights": len(names["weights"])}
