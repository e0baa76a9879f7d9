"""A project is one Unix user on all nodes that share storage."""

import json
from pathlib import Path

import pytest

from workers.node_agent.errors import StartError
from workers.node_agent.isolation import ProjectUsers

FIRST, OTHER = 2_000_000, 3_000_000


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    folder = tmp_path / "persistent"
    folder.mkdir()
    return folder


def test_nodes_with_one_storage_run_a_project_as_one_user(storage: Path) -> None:
    left = ProjectUsers(storage, FIRST, 10)
    right = ProjectUsers(storage, OTHER, 10)
    assert left.user_of("vision").uid == FIRST
    assert right.user_of("vision").uid == FIRST
    assert right.user_of("speech").uid == OTHER
    assert left.user_of("speech").uid == OTHER
    assert left.user_of("tables").uid == FIRST + 1


def test_a_range_that_is_used_up_is_refused(storage: Path) -> None:
    users = ProjectUsers(storage, FIRST, 2)
    users.user_of("vision")
    with pytest.raises(StartError, match="--user-range"):
        users.user_of("speech")


def test_users_allocated_before_keep_their_projects(storage: Path) -> None:
    (storage.parent / "users.json").write_text(json.dumps({"vision": FIRST + 4}))
    assert ProjectUsers(storage, FIRST, 10).user_of("vision").uid == FIRST + 4
    assert ProjectUsers(storage, FIRST, 10).user_of("speech").uid == FIRST + 5


def test_a_list_that_names_root_is_refused(storage: Path) -> None:
    (storage / ".users.json").write_text(json.dumps({"vision": 0}))
    with pytest.raises(StartError, match="must not be root"):
        ProjectUsers(storage, FIRST, 10).user_of("vision")
