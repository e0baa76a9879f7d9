"""The file browser of a notebook server: the shared workspace, and the personal folder in it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tornado import web

from workers.lab.contents import Contents, Kernels

TEXT = {"type": "file", "format": "text", "content": "typed"}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """What all members write into. Its path has a hidden folder, as many data folders have."""
    folder = tmp_path / ".slipway" / "project" / "workspace"
    (folder / "reports").mkdir(parents=True)
    (folder / "shared.txt").write_text("of all")
    return folder


@pytest.fixture
def home(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The personal folder, beside the workspace."""
    folder = workspace.parent / "person-usr_1"
    (folder / "notes").mkdir(parents=True)
    (folder / "mine.txt").write_text("of one person")
    (folder / ".bashrc").write_text("")
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def contents(workspace: Path, home: Path) -> Any:
    return Contents(root_dir=str(workspace))


def names(model: dict[str, Any]) -> list[str]:
    return sorted(entry["name"] for entry in model["content"])


def refused(call: Callable[[], Any]) -> int:
    """Return the status of a call that is refused."""
    with pytest.raises(web.HTTPError) as caught:
        asyncio.run(call())
    return int(caught.value.status_code)


def test_the_personal_folder_is_the_first_in_the_workspace(contents: Any, home: Path) -> None:
    root = asyncio.run(contents.get(""))
    assert root["content"][0]["path"] == "personal"
    assert names(root) == ["personal", "reports", "shared.txt"]
    assert names(asyncio.run(contents.get("personal"))) == ["mine.txt", "notes"]
    assert asyncio.run(contents.get("personal/mine.txt"))["content"] == "of one person"
    asyncio.run(contents.save(TEXT, "personal/notes/new.txt"))
    assert (home / "notes" / "new.txt").read_text() == "typed"
    asyncio.run(contents.rename("personal/notes/new.txt", "reports/new.txt"))
    assert asyncio.run(contents.get("reports/new.txt"))["content"] == "typed"
    asyncio.run(contents.delete("personal/mine.txt"))
    assert not (home / "mine.txt").exists()
    # Hidden files stay hidden, and the folder itself stays.
    assert asyncio.run(contents.is_hidden("personal/.bashrc"))
    assert not asyncio.run(contents.is_hidden("personal"))
    assert refused(lambda: contents.get("personal/.bashrc")) == 404
    assert refused(lambda: contents.delete("personal")) == 403
    assert refused(lambda: contents.rename("personal", "public")) == 403
    assert refused(lambda: contents.get("personal/../workspace/shared.txt")) == 404


def test_nothing_in_the_workspace_takes_the_place_of_the_personal_folder(
    contents: Any, workspace: Path
) -> None:
    (workspace / "personal").mkdir()
    (workspace / "personal" / "trap.txt").write_text("")
    assert names(asyncio.run(contents.get(""))).count("personal") == 1
    assert names(asyncio.run(contents.get("personal"))) == ["mine.txt", "notes"]


@pytest.mark.parametrize("target", ["mine.txt", ".bashrc", ".ipython/startup.py"])
def test_a_link_into_the_personal_folder_is_refused(
    contents: Any, workspace: Path, home: Path, target: str
) -> None:
    before = (home / target).read_text() if (home / target).exists() else None
    (workspace / "innocent.txt").symlink_to(home / target)
    (workspace / "folder").symlink_to(home)
    (workspace / "chain.txt").symlink_to(workspace / "folder" / target)
    assert names(asyncio.run(contents.get(""))) == ["personal", "reports", "shared.txt"]
    for path in ("innocent.txt", "chain.txt", f"folder/{target}", "folder/new.txt"):
        assert refused(lambda path=path: contents.save(TEXT, path)) == 403  # type: ignore[misc]
        assert refused(lambda path=path: contents.get(path)) == 403  # type: ignore[misc]
    assert ((home / target).read_text() if (home / target).exists() else None) == before
    assert not (home / "new.txt").exists()


def test_a_checkpoint_is_not_made_through_a_link(
    contents: Any, workspace: Path, home: Path
) -> None:
    (workspace / "reports" / ".ipynb_checkpoints").symlink_to(home)
    (workspace / "reports" / "a.py").write_text("1")
    assert refused(lambda: contents.create_checkpoint("reports/a.py")) == 403
    assert not list(home.glob("*-checkpoint.py"))
    asyncio.run(contents.create_checkpoint("personal/mine.txt"))
    assert (home / ".ipynb_checkpoints" / "mine-checkpoint.txt").exists()


def test_kernels_start_in_the_folder_of_their_notebook(workspace: Path, home: Path) -> None:
    kernels: Any = Kernels(root_dir=str(workspace))  # type: ignore[no-untyped-call]
    for path, folder in (
        ("", workspace),
        ("reports/a.ipynb", workspace / "reports"),
        ("personal/a.ipynb", home),
        ("personal/notes/a.ipynb", home / "notes"),
        ("personal/../../a.ipynb", home),
    ):
        assert kernels.cwd_for_path(path) == str(folder), path
