"""The two kinds of rank under a parameter server, as engines of the trainer.

The first ranks are workers, the last are servers, so that rank 0 stays the one that prints.
"""

import contextlib
import os
import secrets
import socket
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn

from slipway.distributed.batches import Batch, Share, call, pieces, size_of, to_device
from slipway.distributed.clipping import GradientClip
from slipway.distributed.engine import (
    EngineState,
    LossFunction,
    Outcome,
    StoredState,
    evaluating,
    model_state,
)
from slipway.distributed.errors import PeerLost, StrategyNotPossible
from slipway.distributed.exchange import from_first, gather_json
from slipway.distributed.optimizers import OptimizerFactory, Plain, ScheduleFactory
from slipway.distributed.parameter_server.client import ParameterClient
from slipway.distributed.parameter_server.server import Server
from slipway.distributed.parameter_server.shard import Shard
from slipway.distributed.parameter_server.shards import describe, divide
from slipway.schemas.strategy import Layout, Servers

SECRET_VARIABLE = "SLIPWAY_JOB_SECRET"  # noqa: S105 - the name of the variable, not a secret
_SLACK_S = 30.0


class WorkerEngine:
    """Computes gradients on a whole copy of the model. The servers change the parameters."""

    batch_multiple = 1

    def __init__(
        self,
        *,
        module: nn.Module,
        client: ParameterClient,
        loss_function: LossFunction,
        share: Share,
        microbatches: int,
        device: torch.device,
    ) -> None:
        self.share = share
        self._module = module
        self._client = client
        self._loss_function = loss_function
        self._microbatches = microbatches
        self._device = device
        self._parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self._clock = 0
        self._load_parameters(client.pull())

    @property
    def saves(self) -> bool:
        """True if this worker writes checkpoints, as the live worker with the lowest number."""
        return self._client.is_leader

    def step(self, batch: Batch, weight: float, stop: bool) -> Outcome:
        """Send the gradients of this worker's share, and return when it may continue.

        The loss is the mean over all workers when synchronous, else this worker's own.
        """
        batch = to_device(batch, self._device)
        samples = size_of(batch[0])
        total = 0.0
        for inputs, target in pieces(batch, self._microbatches):
            loss = self._loss_function(call(self._module, inputs), target)
            scaled = loss * (size_of(inputs) / samples)
            scaled.backward()  # type: ignore[no-untyped-call]
            total += scaled.detach().item()
        self._clock += 1
        parameters, mean = self._client.push(
            {name: parameter.grad for name, parameter in self._parameters.items()},
            clock=self._clock,
            weight=weight,
            loss=total,
            stop=stop,
        )
        self._load_parameters(parameters)
        for parameter in self._parameters.values():
            parameter.grad = None
        return Outcome(
            loss=torch.tensor(mean, dtype=torch.float64), stop=self._client.stop_requested
        )

    def measure(self, batch: Batch, function: LossFunction | None) -> torch.Tensor | None:
        """Return the mean of a function over a batch, by the weights this worker has."""
        inputs, target = to_device(batch, self._device)
        with evaluating(self._module):
            return (function or self._loss_function)(call(self._module, inputs), target)

    def pause(self) -> None:
        """Let the others continue without this worker until its next step."""
        with contextlib.suppress(PeerLost):  # servers that are gone do not wait for this worker
            self._client.leave()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the whole model on the CPU on rank 0, nothing elsewhere."""
        if dist.get_rank() != 0:
            return {}
        self._load_parameters(self._client.pull())
        return {n: v.to("cpu", copy=True) for n, v in model_state(self._module).items()}

    def snapshot(self) -> EngineState:
        """Return the whole model and the optimizer state of all servers.

        All of one step when synchronous. Otherwise each server's as it is when asked.
        """
        self._load_parameters(self._client.pull())
        tensors, numbers = self._client.state()
        tensors |= {f"model.{name}": v for name, v in model_state(self._module).items()}
        plain: Plain = {
            "options": {k: v for each in numbers for k, v in each["options"].items()},
            "scalars": {k: v for each in numbers for k, v in each["scalars"].items()},
            "schedules": next((e["schedules"] for e in numbers if e["schedules"]), []),
        }
        return EngineState(tensors, plain)

    def restore(self, stored: StoredState) -> None:
        """Load buffers from the checkpoint, and parameters from the servers, which loaded it."""
        stored.read(
            {
                f"model.{name}": value
                for name, value in model_state(self._module).items()
                if name not in self._parameters
            }
        )
        dist.barrier()  # the servers have read their parts
        self._load_parameters(self._client.pull())

    def close(self) -> None:
        """Disconnect from the servers."""
        self._client.close()

    def _load_parameters(self, parameters: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(parameters[name])


class ServerEngine:
    """Holds a part of the parameters until all workers are done."""

    saves = False
    share = Share()
    batch_multiple = 1

    def __init__(self, shard: Shard, server: Server) -> None:
        self._shard = shard
        self._server = server

    def serve(self) -> bool:
        """Return once all workers are done. The result is true if one of them was asked to stop."""
        self._shard.wait_for_workers_to_leave()
        return self._shard.stop_requested()

    def step(self, batch: Batch, weight: float, stop: bool) -> Outcome:
        """A server has no model to train."""
        raise StrategyNotPossible(
            "This rank is a parameter server, which computes no gradients.",
            next_step="Take batches from trainer.shard(...): it gives servers none and returns "
            "when the workers are done.",
        )

    def measure(self, batch: Batch, function: LossFunction | None) -> torch.Tensor | None:
        """Return nothing: a server has no model."""
        return None

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return nothing: rank 0, a worker, has the model."""
        return {}

    def snapshot(self) -> EngineState:
        """Return nothing: the leading worker writes what the servers hold."""
        return EngineState()

    def restore(self, stored: StoredState) -> None:
        """Load this server's part of a checkpoint."""
        self._shard.restore(stored)
        dist.barrier()

    def close(self) -> None:
        """Stop serving."""
        self._server.close()


def start_role(
    *,
    module: nn.Module,
    factory: OptimizerFactory,
    schedule: ScheduleFactory | None,
    clip_norm: float | None,
    loss_function: LossFunction,
    servers: Servers,
    layout: Layout,
    microbatches: int,
    device: torch.device,
    timeout_s: float,
) -> WorkerEngine | ServerEngine:
    """Become a worker or a server by rank. Collective."""
    rank = dist.get_rank()
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    described = describe(trained)
    if len(described) < layout.servers:
        raise StrategyNotPossible(
            f"{layout.servers} servers cannot share {len(described)} parameters: some hold none.",
            next_step=f"Use at most {max(1, len(described))} servers.",
        )
    layouts = divide(described, layout.servers)
    secret = _job_secret()
    number = rank - layout.workers
    server: Server | None = None
    if number >= 0:
        values = {name: p.detach() for name, p in trained if name in layouts[number].described}
        shard = Shard(
            layouts[number],
            values,
            factory=factory,
            schedule=schedule,
            clip=None if clip_norm is None else GradientClip(clip_norm),
            servers=servers,
            workers=layout.workers,
            patience_s=timeout_s,
        )
        server = Server(
            shard, layouts[number], host=_own_address(), secret=secret, workers=layout.workers
        )
    addresses = gather_json(None if server is None else server.address)
    if server is not None:
        return ServerEngine(shard, server)
    client = ParameterClient(
        [(str(host), int(port)) for host, port in addresses[layout.workers :]],
        layouts,
        worker=rank,
        secret=secret,
        # A server waits for a silent worker before it responds, at most for its own timeout.
        timeout_s=2 * timeout_s + _SLACK_S,
    )
    return WorkerEngine(
        module=module.to(device),
        client=client,
        loss_function=loss_function,
        share=Share(rank, layout.workers),
        microbatches=microbatches,
        device=device,
    )


def _job_secret() -> bytes:
    """Return the secret of the job.

    It comes from the environment where every rank has it, so that it is never sent. Otherwise
    rank 0 creates it for this run and sends it to the others over their group.
    """
    given = os.environ.get(SECRET_VARIABLE, "").encode()
    if all(gather_json(bool(given))):
        return given
    return from_first(secrets.token_bytes(32))


def _own_address() -> str:
    """Return the address of this machine on the network where the ranks meet."""
    meeting_point = os.environ.get("MASTER_ADDR", "127.0.0.1")
    family, _, _, _, address = socket.getaddrinfo(meeting_point, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        # No packet is sent: connecting a datagram socket only asks the routing table.
        probe.connect(address)
        return str(probe.getsockname()[0])
