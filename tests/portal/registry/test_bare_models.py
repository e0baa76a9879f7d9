"""Models that are one file: what it is and what it takes is read, and it is never loaded."""

import io
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from portal.accounts.models import Project
from portal.endpoints.adapters.registry_models import RegistryModels
from portal.endpoints.ports import ServedModel
from slipway.schemas.serving import Signature
from tests.personas import Api, json_of
from tests.portal.registry.store import Store
from tests.workers.serving import linear_model

pytestmark = [
    pytest.mark.django_db(databases=["default", "tracking"]),
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),
]
VERSIONS = "projects/vision/models/digits/versions"
GIVEN = {
    "inputs": [{"name": "pixels", "type": "float32", "shape": [-1, 4]}],
    "outputs": [{"name": "scores", "type": "float32", "shape": [-1, 2]}],
}


class Canary:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return Path.touch, (self.folder / "it sang",)


class Scores(torch.nn.Module):
    """Two tensors in, two out, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return scores and the number after `n`."""
        return {"scores": self.linear(x), "next": n + 1}


def exported() -> bytes:
    """A `.pt2` that takes any number of rows."""
    rows = torch.export.Dim("rows", min=1, max=64)
    given = (torch.ones(3, 4), torch.ones(3, dtype=torch.int64))
    shapes = {"x": {0: rows}, "n": {0: rows}}
    file = io.BytesIO()
    torch.export.save(torch.export.export(Scores(), given, dynamic_shapes=shapes), file)
    return file.getvalue()


def scripted() -> bytes:
    """A TorchScript file."""
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(4, 2)), file)
    return file.getvalue()


def linear(folder: Path) -> bytes:
    """An ONNX file."""
    return (linear_model(folder) / "model.onnx").read_bytes()


def register(
    bob: Api, store: Store, files: Mapping[str, bytes], **more: Any
) -> tuple[dict[str, Any], ServedModel | None]:
    """Register files; returns what is shown of them and what an endpoint would serve."""
    run_id = store.run(files=files)
    answer = bob.post(VERSIONS, {"source": f"runs:/{run_id}/model"} | more)
    assert answer.status_code == 201, answer.content
    made: dict[str, Any] = json_of(answer)
    if made["fault"]:
        return made, None
    project = Project.objects.get(pk=store.project_id)
    served = RegistryModels().find(
        project_id=project.pk, model="digits", version=str(made["version"])
    )
    return made, served


def test_an_onnx_file_tells_what_it_takes(bob: Api, store: Store, tmp_path: Path) -> None:
    made, served = register(bob, store, {"net.onnx": linear(tmp_path), "notes.md": b"hi"})
    assert (made["format"], made["flavors"]) == ("onnx", ["onnx"])
    assert made["signature"] == {
        "inputs": [{"name": "x", "type": "float32", "required": True, "shape": [-1, 4]}],
        "outputs": [{"name": "y", "type": "float32", "required": True, "shape": [-1, 2]}],
        "params": [],
    }
    assert {file["path"] for file in made["files"]} == {"net.onnx", "notes.md"}
    assert served is not None
    assert (served.format, served.entry, served.requirements) == ("onnx", "net.onnx", "")
    read = Signature.model_validate(served.signature)
    assert (read.inputs[0].datatype, read.inputs[0].shape) == ("FP32", [-1, 4])


def test_the_weights_an_old_onnx_file_lists_are_no_inputs(
    bob: Api, store: Store, tmp_path: Path
) -> None:
    linear_model(tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 2]))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(9), "big"))
    made, _ = register(bob, store, {"model.onnx": model.SerializeToString()})
    assert [column["name"] for column in made["signature"]["inputs"]] == ["x"]


@pytest.mark.thorough
def test_an_exported_program_tells_what_it_takes(bob: Api, store: Store) -> None:
    made, served = register(bob, store, {"model.pt2": exported()})
    assert made["format"] == "torch_export"
    columns = made["signature"]
    assert [(column["name"], column["type"], column["shape"]) for column in columns["inputs"]] == [
        ("x", "float32", [-1, 4]),
        ("n", "int64", [-1]),
    ]
    assert [column["name"] for column in columns["outputs"]] == ["scores", "next"]
    assert served is not None
    assert (served.format, served.entry) == ("torch_export", "model.pt2")


def test_torchscript_takes_what_it_was_given(bob: Api, store: Store) -> None:
    made, served = register(bob, store, {"model.pt": scripted()}, signature=GIVEN)
    assert made["format"] == "torchscript"
    assert made["signature"]["inputs"][0]["name"] == "pixels"
    assert served is not None
    assert Signature.model_validate(served.signature).inputs[0].name == "pixels"
    without, served = register(bob, store, {"model.pt": scripted()})
    assert without["signature"] is None
    assert served is not None
    assert served.signature is None


def test_a_given_signature_counts_before_the_one_in_the_file(
    bob: Api, store: Store, tmp_path: Path
) -> None:
    made, _ = register(bob, store, {"model.onnx": linear(tmp_path)}, signature=GIVEN)
    assert made["signature"]["inputs"][0]["name"] == "pixels"


def archive(**files: bytes) -> bytes:
    """A zip file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as opened:
        for name, data in files.items():
            opened.writestr(f"m/{name}", data)
    return content.getvalue()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("files", "more", "message"),
    [
        ({"notes.txt": b"hi"}, {}, "no model in TorchScript, torch.export or ONNX format"),
        ({"a.onnx": b"", "b.pt2": b""}, {}, "a.onnx and b.pt2 could both be the model"),
        ({"a.onnx": b""}, {}, "is not ONNX"),
        ({"a.onnx": b"\x80\x04 no"}, {}, "is not ONNX"),
        ({"a.onnx": b"\x3a\xff\xff\xff\xff\x7f"}, {}, "is truncated"),
        ({"a.onnx": b"\x08" + b"\xff" * 40}, {}, "is truncated"),
        ({"a.onnx": b"\x08\x01" * 300_001}, {}, "too many parts"),
        ({"a.pt2": b"PK\x03\x04"}, {}, "not an archive saved by torch"),
        ({"a.pt": archive(**{"data.pkl": b""})}, {}, "perhaps only weights"),
        ({"a.pt": archive(**{"constants.pkl": b"", "code/a.py": b""})}, {"format": "onnx"}, "onnx"),
        ({"a.pt2": archive(**{"constants.pkl": b"", "code/a.py": b""})}, {}, ""),
        (
            {"a.pt": archive(**{"constants.pkl": b"", "code/a.py": b""})},
            {"format": "torch_export"},
            "a.pt is torchscript, but the format given is torch_export",
        ),
    ],
)
def test_what_is_no_model_is_said_so(
    bob: Api, store: Store, files: dict[str, bytes], more: dict[str, Any], message: str
) -> None:
    made, _ = register(bob, store, files, **more)
    assert message in (made["fault"] or ""), made
    assert bool(made["fault"]) is bool(message)


def test_a_list_of_a_million_files_is_not_read(bob: Api, store: Store) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as opened:
        for number in range(25_000):
            opened.writestr(f"m/{number}{'x' * 60}", b"")
    made, _ = register(bob, store, {"model.pt2": content.getvalue()})
    assert "the archive has too many entries" in made["fault"]


@pytest.mark.parametrize("name", ["model.pt", "model.pt2", "model.onnx"])
def test_no_pickle_in_a_file_is_opened(bob: Api, store: Store, tmp_path: Path, name: str) -> None:
    canary = pickle.dumps(Canary(tmp_path))
    saved = io.BytesIO()
    torch.save(Canary(tmp_path), saved)
    singing = archive(
        **{
            "constants.pkl": canary,
            "data.pkl": canary,
            "code/a.py": b"",
            "models/model.json": b"{}",
            "data/weights/weight_0": canary,
        }
    )
    for content in (canary, saved.getvalue(), singing):
        register(bob, store, {name: content})
    assert not (tmp_path / "it sang").exists()
    sing, words = Canary(tmp_path).__reduce__()
    sing(*words)
    assert (tmp_path / "it sang").exists()


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"format": "pickle"}, "format"),
        ({"signature": {"inputs": []}}, "signature.inputs"),
        ({"signature": {"inputs": [{"name": "x", "type": "tensor", "shape": [1]}]}}, "type"),
        ({"signature": {"inputs": [{"name": "x", "type": "int8", "shape": [-2]}]}}, "shape"),
        ({"signature": {"inputs": GIVEN["inputs"] * 2}}, "signature"),
    ],
)
def test_a_signature_that_cannot_be_is_refused(
    bob: Api, store: Store, more: dict[str, Any], field: str
) -> None:
    source = {"source": f"runs:/{store.run()}/model"}
    answer = bob.post(VERSIONS, source | more)
    assert answer.status_code == 422, answer.content
    assert field in json_of(answer)["errors"][0]["field"]
