"""Rank of this process in its job, its device, and its process group.

Reads the variables that torchrun, Slipway and launchers compatible with torchrun set: RANK,
WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Without them the process is a
job of one.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from slipway.distributed.errors import StrategyNotPossible

logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S = 120.0
TIMEOUT_VARIABLE = "SLIPWAY_COLLECTIVE_TIMEOUT_S"


@dataclass(frozen=True, slots=True)
class Ranks:
    """The place of this process: `rank` of `world_size`, `local_rank` on its machine."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @property
    def is_first(self) -> bool:
        """True if this is rank 0."""
        return self.rank == 0


def read_ranks(environment: Mapping[str, str] | None = None) -> Ranks:
    """Return the place of this process: in the group it already joined, else by the environment.

    Raises StrategyNotPossible when the variables contradict each other or are no numbers.
    """
    environment = os.environ if environment is None else environment
    if dist.is_initialized():
        rank, world_size = dist.get_rank(), dist.get_world_size()
        return Ranks(
            rank=rank,
            world_size=world_size,
            local_rank=_integer(environment, "LOCAL_RANK", rank),
            local_world_size=_integer(environment, "LOCAL_WORLD_SIZE", world_size),
        )
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        return Ranks()
    rank = _integer(environment, "RANK", 0)
    world_size = _integer(environment, "WORLD_SIZE", 1)
    if not 0 <= rank < world_size:
        raise StrategyNotPossible(
            f"RANK={rank} is not a rank of WORLD_SIZE={world_size}.",
            next_step="Start the script with slipway train or torchrun, which set both.",
        )
    if world_size > 1:
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            if not environment.get(name):
                raise StrategyNotPossible(
                    f"WORLD_SIZE is {world_size}, but {name} does not say where ranks meet.",
                    next_step="Start the script with slipway train or torchrun, which set it.",
                )
    return Ranks(
        rank=rank,
        world_size=world_size,
        local_rank=_integer(environment, "LOCAL_RANK", rank),
        local_world_size=_integer(environment, "LOCAL_WORLD_SIZE", world_size),
    )


def _integer(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise StrategyNotPossible(
            f'{name}="{text}" is not a number.',
            next_step="Start the script with slipway train or torchrun, which set it.",
        ) from None


def choose_device(ranks: Ranks, device: str | torch.device | None) -> torch.device:
    """Return the device to compute on: the requested one, else this rank's GPU, else the CPU."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    chosen = torch.device(device)
    if chosen.type != "cuda":
        return chosen
    number, count = (chosen.index or ranks.local_rank), torch.cuda.device_count()
    if number >= count:
        raise StrategyNotPossible(
            f"Rank {ranks.rank} wants GPU {number} of its machine, which shows {count}.",
            next_step="Start one process a GPU, or ask for a tier with more GPUs.",
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def timeout_from(environment: Mapping[str, str], given_s: float | None) -> float:
    """Return after how many seconds of silence a peer counts as lost."""
    if given_s is None:
        text = environment.get(TIMEOUT_VARIABLE, str(DEFAULT_TIMEOUT_S))
        try:
            given_s = float(text)
        except ValueError:
            raise StrategyNotPossible(
                f'{TIMEOUT_VARIABLE}="{text}" is not a number of seconds.',
                next_step="Set it to a number such as 120, or leave it out.",
            ) from None
    if not 0 < given_s < 7 * 86_400:
        raise StrategyNotPossible(
            f"A time limit of {given_s:g} s for peers makes no sense.",
            next_step="Give between a second and a week; 120 is the default.",
        )
    return given_s


def join_group(ranks: Ranks, device: torch.device, *, timeout_s: float) -> bool:
    """Join the process group of the job, gloo for the CPU and NCCL for GPUs.

    Returns whether this call made the group. A group that the script made is used as it is. The
    time limit is set here because torch's own of 30 minutes hides a frozen or unreachable peer.
    """
    if dist.is_initialized():
        if "gloo" not in str(dist.get_backend_config()):
            raise StrategyNotPossible(
                "The process group of the script cannot send from the CPU: its backend is "
                f"{dist.get_backend_config()}.",
                next_step="Leave init_process_group() out, or call it with cpu:gloo,cuda:nccl.",
            )
        logger.info("Using the process group of the script, with its own time limit.")
        return False
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    timeout = timedelta(seconds=timeout_s)
    if ranks.world_size == 1:
        # A single rank needs no address, no port and no network.
        store = HashStore()
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout)
    else:
        dist.init_process_group(backend, timeout=timeout)
    return True
