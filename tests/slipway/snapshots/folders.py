"""Folders of code for the tests: trees on disk, repositories, and what lies in an archive."""

import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from slipway.snapshots import Snapshot


def write_tree(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files with their folders; returns the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, as somebody, whatever this machine's configuration says."""
    return subprocess.run(
        ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def make_repository(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Make a repository with one commit of these files; returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    write_tree(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first", "--allow-empty")
    return folder


def unpacked(snapshot: Snapshot) -> dict[str, bytes]:
    """Return the files of a snapshot, as the standard library reads the archive."""
    content = b"".join(snapshot.pieces())
    assert len(content) == snapshot.size_bytes
    contents: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            assert member.isfile()
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
            assert member.mtime == 0
            file = archive.extractfile(member)
            assert file is not None
            contents[member.name] = file.read()
    return contents
