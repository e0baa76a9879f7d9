"""The state of the random generators of a rank, as tensors: Python's, numpy's and torch's."""

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch


def capture_random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """Return the state of every generator in use."""
    version, internal, gauss = random.getstate()
    state = {
        "python": torch.tensor([version, *internal], dtype=torch.int64),
        "python_gauss": torch.tensor(
            [float("nan") if gauss is None else gauss], dtype=torch.float64
        ),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    if (numpy := _numpy()) is not None:
        _, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = torch.tensor(
            [*map(int, keys), int(position), int(has_gauss)], dtype=torch.int64
        )
        state["numpy_gauss"] = torch.tensor([float(cached)], dtype=torch.float64)
    return state


def restore_random_state(state: Mapping[str, torch.Tensor], device: torch.device) -> None:
    """Restore captured states. Other generators are not changed."""
    if "python" in state:
        version, *internal = state["python"].tolist()
        gauss = state["python_gauss"].item()
        random.setstate((version, tuple(internal), None if gauss != gauss else gauss))
    if "torch" in state:
        torch.set_rng_state(state["torch"])
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
    if "numpy" in state and (numpy := _numpy()) is not None:
        *keys, position, has_gauss = state["numpy"].tolist()
        numpy.random.set_state(("MT19937", keys, position, has_gauss, state["numpy_gauss"].item()))


def _numpy() -> Any:
    """Return numpy if the script uses it: importing it here would only cost time."""
    return sys.modules.get("numpy")
