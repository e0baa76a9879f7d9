"""What a snapshot tells of the repository it was taken from."""

import os
from pathlib import Path

import pytest

from slipway.schemas.training import MAX_DIFF_CHARACTERS, GitFacts
from slipway.snapshots import take_snapshot
from slipway.snapshots.git import without_credentials
from tests.slipway.snapshots.folders import git, make_repository, unpacked, write_tree


def git_facts(folder: Path) -> GitFacts:
    with take_snapshot(folder) as snapshot:
        assert snapshot.git is not None
        return snapshot.git


def test_a_clean_repository_is_its_commit(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "code", {"train.py": "x = 1\n"})
    git(repository, "remote", "add", "origin", "https://ada:hunter2@git.example.org/vision.git?t=x")
    details = git_facts(repository)
    assert details.commit == git(repository, "rev-parse", "HEAD").strip()
    assert (details.branch, details.is_dirty, details.diff) == ("main", False, "")
    assert details.remote == "https://git.example.org/vision.git"


def test_the_diff_turns_the_commit_into_the_snapshot(tmp_path: Path) -> None:
    before = {
        "train.py": "lr = 0.1\n",
        "old.py": "gone\n",
        "same.py": "same\n",
        "ff.c": "a\fb\n",
        "endless.txt": "no line break",
    }
    repository = make_repository(tmp_path / "code", before)
    git(tmp_path, "clone", "-q", str(repository), str(tmp_path / "copy"))
    write_tree(
        repository,
        {
            "train.py": "lr = 0.2\n",
            "new dir/new é.py": "x = 1\n\n  \n",
            "new.sh": "echo hi",
            "empty.py": "",
            "ff.c": "a\fc\n",
            "endless.txt": "no line break either",
        },
    )
    (repository / "old.py").unlink()
    (repository / "new.sh").chmod(0o755)
    with take_snapshot(repository) as snapshot:
        assert snapshot.git is not None
        assert snapshot.git.is_dirty
        (tmp_path / "diff").write_text(snapshot.git.diff, newline="")
        expected = unpacked(snapshot)
    git(tmp_path / "copy", "apply", "--whitespace=nowarn", str(tmp_path / "diff"))
    with take_snapshot(tmp_path / "copy") as copy:
        assert unpacked(copy) == expected
        assert copy.digest == snapshot.digest, "the exec bits are part of it"


def test_a_subfolder_is_told_of_by_paths_from_there(tmp_path: Path) -> None:
    repository = make_repository(tmp_path, {"a/train.py": "x\n", "b/other.py": "x\n"})
    write_tree(repository, {"a/train.py": "y\n", "b/other.py": "y\n", "b/new.py": "n\n"})
    with take_snapshot(repository / "a") as snapshot:
        assert set(unpacked(snapshot)) == {"train.py"}
        assert snapshot.git is not None
        assert "+++ b/train.py" in snapshot.git.diff
        assert "other.py" not in snapshot.git.diff


def test_no_secret_is_in_the_diff(tmp_path: Path) -> None:
    repository = make_repository(
        tmp_path, {".env": "KEY=old\n", "gone.pem": "old pem\n", "train.py": "x\n"}
    )
    write_tree(repository, {".env": "KEY=hunter2\n", "new.key": "hunter2\n", "big": "ignored\n"})
    (repository / "gone.pem").unlink()
    (repository / ".slipwayignore").write_text("big\n")
    with take_snapshot(repository) as snapshot:
        assert snapshot.git is not None
        assert set(unpacked(snapshot)) == {"train.py", ".slipwayignore"}
        for secret in ("hunter2", "KEY=old", "old pem", "ignored"):
            assert secret not in snapshot.git.diff
        assert "look like secrets" in snapshot.git.diff
    with take_snapshot(repository, include=[".env"]) as snapshot:
        assert snapshot.git is not None
        assert "+KEY=hunter2" in snapshot.git.diff
        assert ".env" in unpacked(snapshot)


def test_binary_and_large_changes_are_noted_and_not_shown(tmp_path: Path) -> None:
    repository = make_repository(tmp_path, {"a.bin": b"\0\1", "long.txt": "x\n", "z.py": "z\n"})
    write_tree(
        repository,
        {
            "a.bin": b"\0\2",
            "new.bin": b"\0\3",
            "long.txt": "y" * 80 + "\n" + "line\n" * (MAX_DIFF_CHARACTERS // 5),
            "new.txt": "n\n" * 200_000,
            "z.py": "zz\n",
        },
    )
    details = git_facts(repository)
    assert "Binary files a/a.bin and b/a.bin differ" in details.diff
    assert "# Cut here" in details.diff
    assert len(details.diff) <= MAX_DIFF_CHARACTERS
    assert "line" not in details.diff, "it is cut behind a whole file"
    (repository / "long.txt").write_text("y\n")
    details = git_facts(repository)
    assert "Binary files /dev/null and b/new.bin differ" in details.diff
    assert "# New and not shown here: new.txt" in details.diff
    assert "+zz" in details.diff


def test_a_detached_head_has_no_branch_and_a_new_repository_no_facts(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "one", {"a.py": ""})
    git(repository, "checkout", "-q", "--detach")
    assert git_facts(repository).branch == ""
    empty = tmp_path / "two"
    empty.mkdir()
    git(empty, "init", "-q")
    write_tree(empty, {"a.py": "", "b.log": "", ".gitignore": "*.log\n"})
    with take_snapshot(empty) as snapshot:
        assert snapshot.git is None
        assert set(unpacked(snapshot)) == {"a.py", ".gitignore"}


def test_no_program_of_the_repository_is_run(tmp_path: Path) -> None:
    repository = make_repository(
        tmp_path / "code", {"a.txt": "a\n", ".gitattributes": "*.txt diff=x\n"}
    )
    mark = tmp_path / "was-here"
    for name in ("diff.external", "diff.x.command", "diff.x.textconv", "core.fsmonitor"):
        git(repository, "config", name, f"touch {mark};")
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    hook.chmod(0o755)
    (repository / "a.txt").write_text("b\n")
    assert "+b" in git_facts(repository).diff
    assert not mark.exists()


def test_the_settings_of_a_person_do_not_change_the_diff(tmp_path: Path) -> None:
    repository = make_repository(tmp_path, {"a.py": "a\n"})
    for name, value in {
        "diff.noprefix": "true",
        "color.ui": "always",
        "diff.mnemonicPrefix": "true",
        "diff.renames": "copies",
    }.items():
        git(repository, "config", name, value)
    (repository / "a.py").write_text("b\n")
    assert git_facts(repository).diff.startswith("diff --git a/a.py b/a.py\n")


def test_inside_a_hook_the_folder_still_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repository(tmp_path / "other", {"other.py": ""})
    repository = make_repository(tmp_path / "code", {"a.py": ""})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    with take_snapshot(repository) as snapshot:
        assert set(unpacked(snapshot)) == {"a.py"}


def test_a_repository_inside_is_taken_like_a_folder(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "code", {"a.py": ""})
    library = make_repository(tmp_path / "library", {"lib.py": "", ".gitignore": "*.log\n"})
    git(
        repository,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        str(library),
        "sub",
    )
    make_repository(repository / "nested", {"n.py": ""})
    write_tree(repository, {"sub/x.log": "", "sub/new.py": ""})
    with take_snapshot(repository) as snapshot:
        names = set(unpacked(snapshot))
    assert {"a.py", "sub/lib.py", "sub/new.py", "nested/n.py"} <= names
    assert "sub/x.log" not in names
    assert not [name for name in names if ".git/" in name]


def test_a_folder_that_git_does_not_trust_is_taken_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path, {"a.py": "", ".gitignore": "*.log\n", "b.log": ""})
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    with take_snapshot(repository) as snapshot:
        assert set(unpacked(snapshot)) == {"a.py", ".gitignore"}
        assert snapshot.git is None
        assert "dubious ownership" in snapshot.note


def test_without_git_the_ignore_files_are_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path / "code", {"a.py": "", ".gitignore": "*.log\n", "b.log": ""})
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with take_snapshot(tmp_path / "code") as snapshot:
        assert set(unpacked(snapshot)) == {"a.py", ".gitignore"}
        assert (snapshot.git, snapshot.note) == (None, "")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:token@git.example.org/a/b.git", "https://git.example.org/a/b.git"),
        ("https://ghp_token@git.example.org/a/b", "https://git.example.org/a/b"),
        ("https://git.example.org:8443/a?private_token=x#y", "https://git.example.org:8443/a"),
        ("ssh://git@git.example.org:22/a/b.git", "ssh://git@git.example.org:22/a/b.git"),
        ("ssh://ada:pw@git.example.org/a", "ssh://git.example.org/a"),
        ("git@git.example.org:a/b.git", "git@git.example.org:a/b.git"),
        ("ada:pw@git.example.org:a/b.git", ""),
        ("../other", "../other"),
        ("https://[broken/a", ""),
        ("", ""),
    ],
)
def test_a_remote_is_shown_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown
