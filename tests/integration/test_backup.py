"""`manage.py backup` and `restore`: an empty installation becomes the one that was saved."""

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from slipway import Client
from tests.portals import RunningPortal, running_portal
from tests.prepared import copy_tables
from tests.processes import Installation, installation


class Saved:
    """An installation with something in it, and the file of its backup."""

    def __init__(self, portal: RunningPortal, folder: Path) -> None:
        self.portal = portal
        self.file = folder / "slipway.backup"
        self._fill(folder)
        self.answers = answers_of(portal.client("alice"))
        self.done = portal.installation.manage("backup", str(self.file))
        assert self.done.returncode == 0, self.done.stderr

    def _fill(self, folder: Path) -> None:
        with self.portal.client("root") as root:
            tier = {
                "name": "Small",
                "slug": "small",
                "resources": {"cpu_millis": 500, "memory_bytes": 2**30},
                "nano_usd_per_hour": 123_456_789,
            }
            made = root.post("/tiers", json=tier)
            assert made.status_code == 201, made.text
        with self.portal.client("alice") as alice:
            made = alice.post("/projects", json={"name": "Röntgen 肺"})
            assert made.status_code == 201, made.text
            slug = made.json()["slug"]
            secret = alice.put(f"/projects/{slug}/secrets/TOKEN", json={"value": "hunter-2"})
            assert secret.is_success, secret.text
        sdk = Client(self.portal.url, self.portal.tokens["alice"])
        table = folder / "table.csv"
        table.write_text("n,square\n" + "".join(f"{n},{n * n}\n" for n in range(1000)))
        sdk.datasets.push("squares", table, project=slug)
        mlflow = httpx.Client(
            base_url=f"{self.portal.url}/mlflow/{slug}/api/2.0/mlflow",
            headers={"Authorization": f"Bearer {self.portal.tokens['alice']}"},
        )
        run = mlflow.post("/runs/create", json={"experiment_id": "0", "start_time": 1}).json()
        run_id = run["run"]["info"]["run_id"]
        for step in range(50):
            point = {"run_id": run_id, "key": "loss", "value": 1 / (step + 1), "timestamp": step}
            assert mlflow.post("/runs/log-metric", json=point | {"step": step}).is_success


def answers_of(client: httpx.Client) -> dict[str, Any]:
    """What a person sees of what was saved."""
    with client:
        slug = client.get("/projects").json()["items"][0]["slug"]
        addresses = [
            "/projects",
            "/tiers",
            f"/projects/{slug}/members",
            f"/projects/{slug}/secrets",
            f"/projects/{slug}/datasets",
            f"/projects/{slug}/datasets/squares/versions/1",
            f"/projects/{slug}/runs",
            f"/projects/{slug}/audit",
        ]
        answers = {address: client.get(address) for address in addresses}
    assert all(answer.status_code == 200 for answer in answers.values()), answers
    return {address: answer.json() for address, answer in answers.items()}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saved]:
    folder = tmp_path_factory.mktemp("saved")
    with running_portal(folder, command=("up", "--no-input")) as portal:
        yield Saved(portal, folder)


def manifest_of(path: Path) -> dict[str, Any]:
    """The manifest of a backup, read without our code."""
    with tarfile.open(path) as tar:
        file = tar.extractfile("manifest.json")
        assert file is not None
        found: dict[str, Any] = json.load(file)
    return found


def refused(done: "subprocess.CompletedProcess[str]", said: str) -> None:
    """Check that a command was refused in one line, without a stack."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_an_empty_installation_becomes_the_one_saved(saved: Saved, tmp_path: Path) -> None:
    with installation(tmp_path, empty=True) as fresh:
        comes_back_in(saved, fresh)


def test_a_backup_moves_between_databases(saved: Saved, tmp_path: Path) -> None:
    """On PostgreSQL this goes to SQLite and from there back to another PostgreSQL."""
    there = tmp_path / "there"
    there.mkdir()
    moved = Installation(there, "")
    copy_tables(moved.data_dir)
    comes_back_in(saved, moved)
    moved.end()
    again = tmp_path / "again.backup"
    done = moved.manage("backup", str(again))
    assert done.returncode == 0, done.stderr
    back = tmp_path / "back"
    back.mkdir()
    with installation(back) as fresh:
        done = fresh.manage("restore", str(again))
        assert done.returncode == 0, done.stderr


def comes_back_in(saved: Saved, fresh: Installation) -> None:
    """Restore into an installation and compare: what people see, every row, all money."""
    done = fresh.manage("restore", str(saved.file))
    assert done.returncode == 0, done.stdout + done.stderr
    copy = fresh.folder / "copy.backup"
    done = fresh.manage("backup", str(copy))
    assert done.returncode == 0, done.stderr
    before, after = manifest_of(saved.file), manifest_of(copy)
    assert after["databases"] == before["databases"]
    assert before["databases"]["tracking"]["metrics"]["rows"] == 50
    prices = before["databases"]["default"]["compute_tierprice"]["nano"]
    assert 123_456_789 in prices.values()
    for name in ("session.key", "secrets.key", "oidc.pem"):
        was, now = (each / "keys" / name for each in (saved_data(saved), fresh.data_dir))
        assert now.read_bytes() == was.read_bytes()
        assert now.stat().st_mode & 0o077 == 0
    program = RunningPortal(fresh, saved.portal.tokens, ("portal",))
    assert answers_of(program.client("alice")) == saved.answers
    sdk = Client(program.url, program.tokens["alice"])
    slug = next(iter(sdk.projects.list())).slug
    with sdk.datasets.content("squares", 1, "table.csv", project=slug) as pulled:
        assert b"".join(pulled).endswith(b"999,998001\n")
    with program.client("alice") as alice:
        assert alice.post("/projects", json={"name": "Next"}).status_code == 201


def saved_data(saved: Saved) -> Path:
    """The data folder of the installation that was saved."""
    return saved.portal.installation.data_dir


def test_nothing_is_overwritten_and_what_is_lost_is_named(saved: Saved, tmp_path: Path) -> None:
    # One test: processes that share tests would each fill and save an installation.
    _what_is_not_empty_is_left_alone(saved)
    _a_file_is_never_overwritten_and_only_its_owner_reads_it(saved)
    _bytes_that_are_lost_are_named(saved, tmp_path)


def _what_is_not_empty_is_left_alone(saved: Saved) -> None:
    done = saved.portal.installation.manage("restore", str(saved.file))
    refused(done, "has people in it")
    assert answers_of(saved.portal.client("alice")) == saved.answers


def _a_file_is_never_overwritten_and_only_its_owner_reads_it(saved: Saved) -> None:
    refused(saved.portal.installation.manage("backup", str(saved.file)), "is there already")
    assert saved.file.stat().st_mode & 0o077 == 0


def damage(copy: Path, how: str) -> None:
    """Do to a backup what disks, cables and people do."""
    with copy.open("r+b") as file:
        if how == "cut":
            file.truncate(copy.stat().st_size // 2)
        elif how == "changed":
            file.seek(1024)
            file.write(b"\0\1\2\3")
        else:
            file.truncate(0)
            file.write(b"PK\3\4 no tar")


@pytest.mark.slow
def test_a_damaged_backup_is_refused_whole(saved: Saved, tmp_path: Path) -> None:
    with installation(tmp_path) as fresh:
        for how in ("cut", "changed", "not ours"):
            copy = tmp_path / f"{how}.backup"
            shutil.copyfile(saved.file, copy)
            damage(copy, how)
            refused(fresh.manage("restore", str(copy)), "backup")
            assert fresh.manage("backup", str(copy), "--check").returncode == 2, how
        people = fresh.manage(
            "shell",
            "-c",
            "from portal.accounts.models import User; print('n', User.objects.count())",
        )
        assert "n 0" in people.stdout


def _bytes_that_are_lost_are_named(saved: Saved, tmp_path: Path) -> None:
    blobs = saved_data(saved) / "blobs"
    hidden = tmp_path / "hidden"
    shutil.move(blobs / "sha256", hidden)
    try:
        done = saved.portal.installation.manage("backup", str(tmp_path / "part.backup"))
    finally:
        shutil.move(hidden, blobs / "sha256")
    assert done.returncode == 1
    assert "could not be read: blobs/sha256/" in done.stderr
