"""Models on another device than they were saved on, such as the GPU that a replica was given."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from slipway.schemas.serving import Datatype, FieldSpec, GoldenPrediction, ModelFormat, Signature
from tests.workers.serving import plane
from workers.model_server.errors import NotReady
from workers.model_server.formats import torch_export, torchscript

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
WORDS = [[number * 7 % 50 for number in range(16)]]


class Places(torch.nn.Module):
    """Words and where they stand, which the module counts itself: on the device it is saved on."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, 8)
        self.places = torch.nn.Embedding(16, 8)
        self.out = torch.nn.Linear(8, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return three numbers a row."""
        places = torch.arange(words.shape[1])
        output: torch.Tensor = self.out((self.words(words) + self.places(places)).mean(1))
        return output


def exported(folder: Path, module: torch.nn.Module) -> Path:
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(
        module, (torch.tensor(WORDS * 2),), dynamic_shapes=({0: rows},), strict=True
    )
    torch.export.save(program, str(folder / "model.pt2"))
    return folder / "model.pt2"


def traced(folder: Path, module: torch.nn.Module) -> Path:
    words = torch.tensor(WORDS * 2)
    torch.jit.save(torch.jit.trace(module, words), str(folder / "model.pt"))  # type: ignore[no-untyped-call]
    return folder / "model.pt"


class Numbers(torch.nn.Module):
    """Answers with a tensor that it makes itself."""

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return a number for each word."""
        return torch.arange(words.shape[1])


@pytest.mark.parametrize(
    ("save", "module_on"),
    [(exported, torch_export.module_on), (traced, torchscript.module_on)],
)
def test_a_module_makes_its_tensors_where_it_is_served_and_not_where_it_was_saved(
    tmp_path: Path,
    save: Callable[[Path, torch.nn.Module], Path],
    module_on: Callable[[Path, str], Any],
) -> None:
    path = save(tmp_path, Numbers())
    for device in ("cpu", "meta"):
        module = module_on(path, device)
        numbers = module(torch.zeros(2, 16, dtype=torch.int64, device=device))
        assert (numbers.device.type, numbers.shape) == (device, (16,))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_what_was_exported_on_a_gpu_says_that_it_needs_one(tmp_path: Path) -> None:
    path = exported(tmp_path, Places().eval())
    # As it is saved there.
    moved = tmp_path / "moved.pt2"
    with zipfile.ZipFile(path) as saved, zipfile.ZipFile(moved, "w") as written:
        for name in saved.namelist():
            content = saved.read(name)
            if name.endswith("weights_config.json"):
                assert b'"cpu"' in content
                content = content.replace(b'"cpu"', b'"cuda"')
            written.writestr(name.replace("model/", "moved/", 1), content)
    with pytest.raises(NotReady, match=r"exported on a GPU.*a tier with a GPU"):
        torch_export.load(moved, None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("save", [exported, traced])
def test_a_replica_on_a_gpu_predicts_what_the_model_does_on_the_processor(
    tmp_path: Path, save: Callable[[Path, torch.nn.Module], Path]
) -> None:
    module = Places().eval()
    with torch.inference_mode():
        known = module(torch.tensor(WORDS)).tolist()
    path = save(tmp_path, module)
    with plane() as dataplane:
        replica = dataplane.replica(
            format=ModelFormat.TORCH_EXPORT if save is exported else ModelFormat.TORCHSCRIPT,
            model_dir=str(tmp_path),
            entry=path.name,
            signature=Signature(
                inputs=[FieldSpec(name="words", datatype=Datatype.INT64, shape=[-1, 16])]
            ),
            golden=[GoldenPrediction(request={"inputs": WORDS}, predictions=known)],
        )
        dataplane.start_gateway()
        dataplane.serve(replica)
        answer = dataplane.predict(WORDS * 5)
        assert answer.status == 200, answer.body
        for row in answer.json()["predictions"]:
            assert row == pytest.approx(known[0], abs=1e-5)
