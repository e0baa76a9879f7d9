"""Registered models and versions: the objects an MLflow client sees, read and never loaded."""

import hashlib
import pickle
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from portal.experiments.models import (
    LoggedModel,
    ModelVersion,
    RegisteredModel,
    RegisteredModelAlias,
    RegisteredModelTag,
    Run,
)
from portal.registry import tasks
from portal.registry.models import VersionRecord
from tests.personas import Api, Personas, json_of
from tests.portal.registry.store import FILES, MLMODEL, Store
from tests.turns import thorough_after

pytestmark = pytest.mark.django_db(databases=["default", "tracking"])
MODELS = "projects/vision/models"


def register(api: Api, run_id: str, model: str = "digits", **more: Any) -> dict[str, Any]:
    """Register the model of a run; it must be accepted."""
    answer = api.post(f"{MODELS}/{model}/versions", {"source": f"runs:/{run_id}/model"} | more)
    assert answer.status_code == 201, answer.content
    made: dict[str, Any] = json_of(answer)
    return made


def test_a_registered_run_shows_what_its_files_say(bob: Api, store: Store) -> None:
    run_id = store.run(accuracy=0.9)
    made = register(bob, run_id, tags={"team": "vision"}, description="first")
    assert (made["version"], made["stage"], made["run_id"]) == (1, "Development", run_id)
    assert made["signature"]["inputs"] == [
        {"name": "x", "type": "double", "required": True, "shape": None}
    ]
    assert made["signature"]["outputs"][0]["shape"] == [-1, 10]
    assert made["flavors"] == ["python_function", "sklearn"]
    assert made["example"] == '{"inputs": [[0.5]]}'
    digests = {file["path"]: file["sha256"] for file in made["files"]}
    assert digests == {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    assert made["digest"]
    assert made["author"]["email"] == "bob@example.org"
    assert register(bob, run_id)["version"] == 2
    model = json_of(bob.get(f"{MODELS}/digits"))
    assert (model["versions"], model["latest_version"]) == (2, 2)
    listed = json_of(bob.get(f"{MODELS}/digits/versions"))["items"]
    assert [version["version"] for version in listed] == [2, 1]


def test_the_rows_are_those_of_mlflow(bob: Api, store: Store) -> None:
    run_id = store.run()
    register(bob, run_id)
    row = ModelVersion.objects.get(workspace=store.project_id, name="digits", version=1)
    assert (row.status, row.current_stage, row.run_id) == ("READY", "None", run_id)
    assert row.storage_location is not None
    assert row.storage_location.endswith(f"{run_id}/artifacts/model")
    # What a client of MLflow adds shows here, and what it deletes is gone.
    RegisteredModelAlias.objects.create(
        workspace=store.project_id, name="digits", alias="best", version=1
    )
    RegisteredModelTag.objects.create(
        workspace=store.project_id, name="digits", key="task", value="vision"
    )
    shown = json_of(bob.get(f"{MODELS}/digits"))
    assert (shown["aliases"], shown["tags"]) == ({"best": 1}, {"task": "vision"})
    ModelVersion.objects.filter(name="digits", version=1).update(current_stage="Deleted_Internal")
    assert bob.get(f"{MODELS}/digits/versions/1").status_code == 404
    assert register(bob, run_id)["version"] == 2


def test_a_prompt_is_no_model(bob: Api, store: Store) -> None:
    RegisteredModel.objects.create(workspace=store.project_id, name="greet", creation_time=5)
    RegisteredModelTag.objects.create(
        workspace=store.project_id, name="greet", key="mlflow.prompt.is_prompt", value="true"
    )
    assert json_of(bob.get(MODELS))["items"] == []
    answer = bob.post(f"{MODELS}/greet/versions", {"source": f"runs:/{store.run()}/model"})
    assert (answer.status_code, json_of(answer)["code"]) == (409, "name_taken")
    assert bob.post(MODELS, {"name": "greet"}).status_code == 409


def test_a_model_made_again_under_its_name_starts_anew_and_a_renamed_one_goes_on(
    bob: Api, mia: Api, store: Store
) -> None:
    register(bob, store.run())
    assert mia.post(f"{MODELS}/digits/versions/1/promote", {"stage": "Staging"}).status_code == 201
    bob.patch(f"{MODELS}/digits", {"card": "# Digits"})
    RegisteredModel.objects.filter(name="digits").update(name="numbers")
    shown = json_of(bob.get(f"{MODELS}/numbers"))
    assert (shown["card"], shown["stages"]) == ("# Digits", {"Staging": 1})
    for table in (ModelVersion, RegisteredModel):
        table.objects.filter(name="numbers").delete()
    made = register(bob, store.run(), "numbers")
    assert (made["version"], made["stage"]) == (1, "Development")


@pytest.mark.parametrize(
    "source",
    [
        "s3://bucket/model",
        "file:///etc/passwd",
        "/etc/passwd",
        "https://example.org/model",
        "runs:/00000000000000000000000000000000/model",
        "runs:/{run}/../../model",
        "runs:/{foreign}/model",
        "models:/nothing/1",
        "models:/m-0123456789abcdef0123456789abcdef",
        "mlflow-artifacts:/workspaces/{other}/1/x",
        "mlflow-artifacts:/workspaces/{own}/../{other}/1",
        "mlflow-artifacts:/workspaces/{own}/%2e%2e/x",
        "mlflow-artifacts:/a%2f..%2fb",
        "mlflow-artifacts://elsewhere/x",
        "mlflow-artifacts:/1/x?y",
    ],
)
def test_only_files_of_the_own_project_are_registered(
    bob: Api, people: Personas, store: Store, source: str
) -> None:
    foreign = Store(store.root, people.other.pk).run()
    named = source.format(
        run=store.run(), foreign=foreign, own=people.vision.pk, other=people.other.pk
    )
    answer = bob.post(f"{MODELS}/digits/versions", {"source": named})
    assert (answer.status_code, json_of(answer)["field"]) == (422, "source")
    assert bob.get(f"{MODELS}/digits").status_code == 404


@pytest.mark.parametrize(
    "source",
    [
        "runs:/{run}/nothing",
        "runs:/{run}/model/nothing",
        "runs:/{run}/empty",
        "runs:/{empty}/model",
        "models:/{logged}",
        "models:/digits/1",
        "mlflow-artifacts:/workspaces/{own}/1/nothing",
    ],
)
def test_a_source_without_files_is_refused(
    bob: Api, people: Personas, store: Store, source: str
) -> None:
    run_id, empty = store.run(), store.run(files={})
    place = Run.objects.get(pk=run_id).artifact_uri or ""
    (store.root / place.removeprefix("mlflow-artifacts:/") / "empty").mkdir()
    logged = LoggedModel.objects.create(
        model_id=f"m-{uuid.uuid4().hex}",
        experiment_id=Run.objects.get(pk=run_id).experiment_id,
        name="later",
        artifact_location=f"{place}/later",
        creation_timestamp_ms=1,
        last_updated_timestamp_ms=1,
        status=1,
        lifecycle_stage="active",
        source_run_id=run_id,
    )
    register(bob, run_id)
    shutil.rmtree(store.root / place.removeprefix("mlflow-artifacts:/") / "model")
    own = people.vision.pk
    named = source.format(run=run_id, empty=empty, logged=logged.model_id, own=own)
    answer = bob.post(f"{MODELS}/new/versions", {"source": named})
    problem = json_of(answer)
    assert (answer.status_code, problem["code"]) == (422, "no_such_files"), problem
    assert problem["field"] == "source"
    assert named in problem["detail"]
    assert bob.get(f"{MODELS}/new").status_code == 404


def test_a_single_file_of_a_run_is_registered(bob: Api, store: Store) -> None:
    source = f"runs:/{store.run()}/model/model.pkl"
    assert bob.post(f"{MODELS}/file/versions", {"source": source}).status_code == 201


def test_a_version_of_a_version_has_its_files(bob: Api, store: Store) -> None:
    register(bob, store.run())
    answer = bob.post(f"{MODELS}/copy/versions", {"source": "models:/digits/1"})
    assert json_of(answer)["digest"] == json_of(bob.get(f"{MODELS}/digits/versions/1"))["digest"]


BOMBS = {
    "huge": b"a: " + b"x" * 600_000,
    "deep": b"a: " + b"[" * 10_000,
    "recursive": b"a: &a [*a]\nflavors: &f {python_function: *f}\n",
    "laughs": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(
        b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 115)
    ),
    "many": b"a: [" + b"1," * 50_000 + b"]",
    "tag": b'!!python/object/apply:os.system ["touch CANARY"]\n',
    "tagged flavour": b'flavors: {a: !!python/object/apply:os.system ["touch CANARY"]}\n',
    "binary": b"\xff\xfe\x00",
    "list": b"[1, 2]",
    "bad signature": b"signature: {inputs: '[[[', outputs: ''}\n",
    "odd signature": b"signature: {inputs: '[1, {\"name\": [1], \"type\": {}}]', outputs: '[]'}\n",
    "outside": b"saved_input_example_info: {artifact_path: ../../../secret.json}\n",
}


@pytest.mark.parametrize("name", thorough_after(4, list(BOMBS)))
def test_a_hostile_mlmodel_hurts_nobody(
    bob: Api, store: Store, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = BOMBS[name]
    made = register(bob, store.run(files={"MLmodel": content}))
    assert bob.get(f"{MODELS}/digits/versions/1").status_code == 200
    assert not list(tmp_path.glob("CANARY*"))
    assert made["fault"] or made["example"] is None


def test_no_pickle_is_ever_loaded(bob: Api, mia: Api, store: Store, tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Bomb:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (eval, (f"open({str(canary)!r}, 'w').close()",))

    bomb = pickle.dumps(Bomb())
    files = {
        "MLmodel": MLMODEL.replace("mlflow.sklearn", "bomb").encode(),
        "bomb.py": f"open({str(canary)!r}, 'w').close()".encode(),
        "model.pkl": bomb,
        "model.pt2": bomb,
        "serving_input_example.json": b"{}",
    }
    register(bob, store.run(files=files))
    address = f"{MODELS}/digits/versions/1"
    assert bob.get(address).status_code == 200
    assert bob.get(f"{address}/plan?stage=Production").status_code == 200
    assert mia.post(f"{address}/promote", {"stage": "Production"}).status_code == 201
    assert not canary.exists()
    pickle.loads(bomb)  # noqa: S301  (the canary sings where it is loaded)
    assert canary.exists()


def test_the_digests_of_a_large_model_come_later(
    bob: Api, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.registry.model_inspection._AT_ONCE_BYTES", 1)
    made = register(bob, store.run())
    assert (made["are_files_known"], made["digest"]) == (False, None)
    tasks.hash_pending()
    made = json_of(bob.get(f"{MODELS}/digits/versions/1"))
    assert made["are_files_known"]
    assert made["digest"]
    assert VersionRecord.objects.get().hashed_at is not None


def test_a_link_in_the_store_is_not_followed(bob: Api, store: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush")
    run_id = store.run()
    next(store.root.rglob("model")).joinpath("link.txt").symlink_to(secret)
    assert "link.txt" not in [file["path"] for file in register(bob, run_id)["files"]]


def test_models_are_paged_searched_and_described(bob: Api, store: Store) -> None:
    for name in ("alpha", "beta", "größe 2"):
        assert bob.post(MODELS, {"name": name}).status_code == 201
    first = json_of(bob.get(f"{MODELS}?limit=2"))
    assert [model["name"] for model in first["items"]] == ["alpha", "beta"]
    rest = json_of(bob.get(f"{MODELS}?cursor={first['next_cursor']}"))
    assert [model["name"] for model in rest["items"]] == ["größe 2"]
    assert len(json_of(bob.get(f"{MODELS}?q=BET"))["items"]) == 1
    change = {"card": "# Alpha", "description": "short", "tags": {"a": "1", "b": "2"}}
    assert json_of(bob.patch(f"{MODELS}/alpha", change))["tags"] == {"a": "1", "b": "2"}
    changed = json_of(bob.patch(f"{MODELS}/alpha", {"tags": {"a": None, "b": "3"}}))
    assert (changed["tags"], changed["card"]) == ({"b": "3"}, "# Alpha")
    for bad in ("a/b", "a:b", "..", " ", "x" * 101, "a\u202e"):
        assert bob.post(MODELS, {"name": bad}).status_code == 422, bad
