"""`manage.py backup` and `restore`: an empty installation becomes the one that was saved."""

import base64
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from slipway import Client
from tests.portals import RunningPortal, running_portal
from tests.prepared import copy_tables
from tests.processes import Installation, installation

pytestmark = pytest.mark.integration

PASSPHRASE = "seven quiet herons"


class Saved:
    """An installation with something in it, and the file of its backup."""

    def __init__(self, portal: RunningPortal, folder: Path) -> None:
        self.portal = portal
        self.file = folder / "slipway.backup"
        self._fill(folder)
        self.answers = answers_of(portal.client("alice"))
        portal.installation.environ["SLIPWAY_BACKUP_PASSPHRASE"] = PASSPHRASE
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


def plain_of(path: Path) -> bytes:
    """The bytes inside of an encrypted backup, by its documented form and without our code."""
    content = path.read_bytes()
    magic = b"slipway encrypted backup\n"
    assert content.startswith(magic)
    start = len(magic) + 4
    size = int.from_bytes(content[len(magic) : start], "big")
    head = json.loads(content[start : start + size])
    salt = base64.b64decode(head["salt"])
    secret = Scrypt(salt=salt, length=32, n=head["cost"], r=8, p=1).derive(PASSPHRASE.encode())
    key = HKDF(hashes.SHA256(), 32, salt, b"slipway backup chunks").derive(secret)
    sealed = content[start + size + 32 :]
    step = head["chunk_bytes"] + 16
    chunks = [sealed[at : at + step] for at in range(0, len(sealed), step)]
    last = len(chunks) - 1
    return b"".join(
        AESGCM(key).decrypt(number.to_bytes(11, "big") + bytes([number == last]), chunk, None)
        for number, chunk in enumerate(chunks)
    )


def manifest_of(path: Path) -> dict[str, Any]:
    """The manifest of a backup, read without our code."""
    with tarfile.open(fileobj=io.BytesIO(plain_of(path))) as tar:
        file = tar.extractfile("manifest.json")
        assert file is not None
        manifest: dict[str, Any] = json.load(file)
    return manifest


def refused(done: "subprocess.CompletedProcess[str]", message: str) -> None:
    """Check that a command was refused in one line, without a stack."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_an_empty_installation_becomes_the_one_saved(saved: Saved, tmp_path: Path) -> None:
    with installation(tmp_path, empty=True) as fresh:
        comes_back_in(saved, fresh)


@pytest.mark.thorough
def test_a_backup_moves_between_databases(saved: Saved, tmp_path: Path) -> None:
    """On PostgreSQL this goes to SQLite and from there back to another PostgreSQL."""
    there = tmp_path / "there"
    there.mkdir()
    moved = Installation(there, "")
    moved.environ["SLIPWAY_BACKUP_PASSPHRASE"] = PASSPHRASE
    copy_tables(moved.data_dir)
    comes_back_in(saved, moved)
    moved.end()
    again = tmp_path / "again.backup"
    done = moved.manage("backup", str(again))
    assert done.returncode == 0, done.stderr
    back = tmp_path / "back"
    back.mkdir()
    with installation(back) as fresh:
        fresh.environ["SLIPWAY_BACKUP_PASSPHRASE"] = PASSPHRASE
        done = fresh.manage("restore", str(again))
        assert done.returncode == 0, done.stderr


def comes_back_in(saved: Saved, fresh: Installation) -> None:
    """Restore into an installation and compare: what people see, every row, all money."""
    fresh.environ["SLIPWAY_BACKUP_PASSPHRASE"] = PASSPHRASE
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


@pytest.mark.thorough
def test_nothing_is_overwritten_and_what_is_lost_is_named(saved: Saved, tmp_path: Path) -> None:
    # One test: processes that share tests would each fill and save an installation.
    _what_is_not_empty_is_left_alone(saved)
    _a_file_is_never_overwritten_and_only_its_owner_reads_it(saved)
    _bytes_that_are_lost_are_named(saved, tmp_path)


def _what_is_not_empty_is_left_alone(saved: Saved) -> None:
    done = saved.portal.installation.manage("restore", str(saved.file))
    refused(done, "has users")
    assert answers_of(saved.portal.client("alice")) == saved.answers


def _a_file_is_never_overwritten_and_only_its_owner_reads_it(saved: Saved) -> None:
    refused(saved.portal.installation.manage("backup", str(saved.file)), "already exists")
    assert saved.file.stat().st_mode & 0o077 == 0


CHUNK = 64 * 1024 + 16


def begin_of_chunks(content: bytes) -> int:
    """Where the first chunk of an encrypted backup begins."""
    start = len(b"slipway encrypted backup\n") + 4
    return start + int.from_bytes(content[start - 4 : start], "big") + 32


def tampered(content: bytes) -> dict[str, tuple[bytes, str]]:
    """Versions of an encrypted backup, each with the words of its refusal."""
    begin = begin_of_chunks(content)
    head, sealed = content[:begin], content[begin:]
    first, second = sealed[:CHUNK], sealed[CHUNK : 2 * CHUNK]
    assert len(second) == CHUNK
    flipped = bytearray(content)
    flipped[begin + CHUNK // 2] ^= 1
    cheaper = head.replace(b'"cost": 131072', b'"cost": 32768 ')
    assert cheaper != head
    return {
        "cut": (content[: begin + len(sealed) // 2], "end of the backup is missing"),
        "cut between chunks": (head + first + second, "end of the backup is missing"),
        "cut in the head": (content[:100], "end of the backup is missing"),
        "a bit": (bytes(flipped), "chunk 1 of"),
        "swapped": (head + second + first + sealed[2 * CHUNK :], "fails authentication"),
        "left out": (head + first + sealed[2 * CHUNK :], "missing or was changed"),
        "repeated": (head + first + sealed, "missing or was changed"),
        "more behind": (content + b"more", "end of the backup is missing"),
        "cheaper key": (cheaper + sealed, "the passphrase is wrong"),
        "not ours": (b"PK\3\4 no tar", "is not an encrypted backup"),
        "empty": (b"", "is not an encrypted backup"),
        "the plain bytes": (b"", "is not an encrypted backup"),
    }


# The command itself, for many files in one process.
_EACH = """
import io, json, sys
from django.core.management import call_command
for line in open({listed!r}):
    error = io.StringIO()
    try:
        call_command({command!r}, line.strip(), *{options!r}, stdout=io.StringIO(), stderr=error)
        code = 0
    except SystemExit as ended:
        code = ended.code
    print("RESULT", json.dumps([code, error.getvalue()]))
"""


def refuses_each(
    fresh: Installation, cases: list[tuple[bytes, str]], *options: str, command: str = "restore"
) -> None:
    """Check that each backup is refused in one line with its words."""
    paths = []
    for number, (content, _) in enumerate(cases):
        paths.append(fresh.folder / f"case-{number}.backup")
        paths[-1].write_bytes(content)
    listed = fresh.folder / "cases"
    listed.write_text("\n".join(map(str, paths)))
    script = _EACH.format(listed=str(listed), command=command, options=options)
    done = fresh.manage("shell", "-c", script)
    results = [json.loads(line[7:]) for line in done.stdout.splitlines() if line[:6] == "RESULT"]
    assert len(results) == len(cases), done.stdout + done.stderr
    for (code, error), (_, words) in zip(results, cases, strict=True):
        assert code == 2, (words, error)
        assert words in error
        assert len(error.strip().splitlines()) == 1, error


def people_in(fresh: Installation) -> str:
    """The number of people in an installation, in words."""
    words = "from portal.accounts.models import User; print('n', User.objects.count())"
    return fresh.manage("shell", "-c", words).stdout


def files_in(fresh: Installation) -> dict[str, bytes]:
    """All files of an installation but its databases, which have their own check, and logs."""
    return {
        str(path.relative_to(fresh.data_dir)): path.read_bytes()
        for path in sorted(fresh.data_dir.rglob("*"))
        if path.is_file() and not any(part in path.name for part in (".sqlite", ".db", ".lock"))
    }


@pytest.mark.thorough
def test_a_tampered_backup_is_refused_before_anything_is_written(
    saved: Saved, tmp_path: Path
) -> None:
    with installation(tmp_path) as fresh:
        fresh.environ["SLIPWAY_BACKUP_PASSPHRASE"] = PASSPHRASE
        cases = tampered(saved.file.read_bytes())
        cases["the plain bytes"] = (plain_of(saved.file), cases["the plain bytes"][1])
        assert "n 0" in people_in(fresh)  # a first command makes the keys
        before = files_in(fresh)
        refuses_each(fresh, list(cases.values()))
        fresh.environ["SLIPWAY_BACKUP_PASSPHRASE"] = "seven quiet heron"
        refused(fresh.manage("restore", str(saved.file)), "the passphrase is wrong")
        fresh.environ["SLIPWAY_BACKUP_PASSPHRASE"] = ""
        refused(fresh.manage("restore", str(saved.file)), "needs a passphrase")
        refused(fresh.manage("restore", str(saved.file), "--unencrypted"), "is encrypted")
        assert files_in(fresh) == before
        assert "n 0" in people_in(fresh)


class Forged:
    """A plain backup that somebody wrote by hand, true in all its digests unless changed."""

    def __init__(self, plain: bytes) -> None:
        self.extra: list[tarfile.TarInfo] = []
        with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
            self.members = {
                entry.name: file.read()
                for entry in tar
                if (file := tar.extractfile(entry)) is not None
            }
        self.manifest = json.loads(self.members.pop("manifest.json"))
        del self.members["members.jsonl.gz"]
        self.listed: dict[str, str] = {}

    def write(self, path: Path) -> None:
        """Write it, with digests of what it holds."""
        digests = {name: hashlib.sha256(each).hexdigest() for name, each in self.members.items()}
        lines = [
            json.dumps({"name": name, "size": 0, "sha256": digest})
            for name, digest in (digests | self.listed).items()
        ]
        listing = gzip.compress("\n".join(lines).encode())
        self.manifest["members"] = len(lines)
        self.manifest["members_sha256"] = hashlib.sha256(listing).hexdigest()
        with tarfile.open(path, "w") as tar:
            for name, content in (
                *self.members.items(),
                ("members.jsonl.gz", listing),
                ("manifest.json", json.dumps(self.manifest).encode()),
            ):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
            for entry in self.extra:
                tar.addfile(entry)

    def rows(self, name: str, lines: list[str], count: int) -> None:
        """Replace the rows of a table, in the manifest too."""
        self.members[f"tables/default/{name}.jsonl.gz"] = gzip.compress("\n".join(lines).encode())
        table = self.manifest["databases"]["default"][name]
        digests = [int(hashlib.sha256(line.encode()).hexdigest(), 16) for line in lines]
        table |= {"rows": count, "digest": f"{sum(digests) % (1 << 256):064x}", "nano": {}}

    def blob(self) -> str:
        """The name of a member that is named by its digest."""
        return next(name for name in self.members if name.startswith("blobs/"))

    def link(self, kind: bytes) -> None:
        """Add an entry that is no file."""
        entry = tarfile.TarInfo("data/keys/session.key")
        entry.type, entry.linkname = kind, "/etc/passwd"
        self.extra.append(entry)

    def nobodys_membership(self) -> None:
        """Replace the memberships by a single one, of a person who is not there."""
        table = self.manifest["databases"]["default"]["accounts_membership"]
        row = json.dumps(["x"] * len(table["columns"]), separators=(",", ":"))
        self.rows("accounts_membership", [row], 1)

    def unknown_table(self) -> None:
        """Describe a table that no version has."""
        tables = self.manifest["databases"]["default"]
        tables["sqlite_master"] = tables["accounts_user"]


_USERS = "tables/default/accounts_user.jsonl.gz"
_NOWHERE = "is not part of a backup"
_OTHER_ROWS = "does not contain the rows"
_BOMB = gzip.compress(b"[" + b" " * (80 * 1024 * 1024))
# What is changed in an otherwise true backup, and the words of its refusal.
FORGERIES: list[tuple[Callable[[Forged], object], str]] = [
    (lambda it: it.members.update({"data/../../evil": b"x"}), _NOWHERE),
    (lambda it: it.members.update({"artifacts/../../evil": b"x"}), _NOWHERE),
    (lambda it: it.members.update({"artifacts//etc/evil": b"x"}), _NOWHERE),
    (lambda it: it.members.update({"/etc/evil": b"x"}), _NOWHERE),
    (lambda it: it.members.update({"data/keys.evil/x": b"x"}), _NOWHERE),
    (lambda it: it.members.update({"data/.env": b"x"}), _NOWHERE),
    (lambda it: it.members.update({"blobs/../evil": b"x"}), _NOWHERE),
    (lambda it: it.members.update({f"artifacts/{'n' * 300}": b"x"}), _NOWHERE),
    (lambda it: it.link(tarfile.SYMTYPE), "not a regular file"),
    (lambda it: it.link(tarfile.LNKTYPE), "not a regular file"),
    (lambda it: it.link(tarfile.CHRTYPE), "not a regular file"),
    (lambda it: it.extra.append(tarfile.TarInfo(it.blob())), "twice"),
    (lambda it: it.extra.append(tarfile.TarInfo("data/keys/other")), "does not list"),
    (lambda it: it.listed.update({it.blob(): "0" * 64}), "is damaged"),
    (lambda it: it.members.update({it.blob(): b"other"}), "does not match the digest in its name"),
    (lambda it: it.members.update({_USERS: _BOMB}), "a line of more than 64 MiB"),
    (lambda it: it.members.update({_USERS: b"no gzip"}), "cannot be read"),
    (lambda it: it.rows("accounts_user", ["[]"] * 1000, 3), _OTHER_ROWS),
    (lambda it: it.rows("accounts_user", ["[1]"], 1), _OTHER_ROWS),
    (lambda it: it.nobodys_membership(), "the database rejects rows"),
    (lambda it: it.members.pop(_USERS), f"lacks {_USERS}"),
    (lambda it: it.manifest["databases"].update({"default": []}), "its manifest is not valid"),
    (lambda it: it.unknown_table(), "differ in the tables"),
]


@pytest.mark.thorough
def test_a_hostile_plain_backup_is_refused_before_anything_is_written(
    saved: Saved, tmp_path: Path
) -> None:
    plain = plain_of(saved.file)
    with installation(tmp_path) as fresh:
        copy = tmp_path / "forged.backup"
        assert "n 0" in people_in(fresh)  # a first command makes the keys
        before = files_in(fresh)
        cases = []
        for change, words in FORGERIES:
            forged = Forged(plain)
            change(forged)
            forged.write(copy)
            cases.append((copy.read_bytes(), words))
        refuses_each(fresh, cases, "--unencrypted")
        assert files_in(fresh) == before
        assert "n 0" in people_in(fresh)
        Forged(plain).write(copy)
        done = fresh.manage("restore", str(copy), "--unencrypted")
        assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_nothing_readable_is_in_a_backup_unless_it_is_asked_for(
    saved: Saved, tmp_path: Path
) -> None:
    keys = [path.read_bytes() for path in (saved_data(saved) / "keys").iterdir()]
    content = saved.file.read_bytes()
    assert not any(key.strip() in content for key in keys if len(key) > 8)
    assert b"squares" not in content
    at = saved.portal.installation
    plain = tmp_path / "plain.backup"
    done = at.manage("backup", str(plain), "--unencrypted")
    assert done.returncode == 0
    assert "warning: this backup is not encrypted" in done.stderr
    by_file = tmp_path / "by-file.backup"
    secret = tmp_path / "passphrase"
    secret.write_text("four brown bears asleep\n")
    assert at.manage("backup", str(by_file), "--passphrase-file", str(secret)).returncode == 0
    checked = at.manage("backup", str(by_file), "--check", "--passphrase-file", str(secret))
    assert checked.returncode == 0, checked.stderr
    refused(at.manage("backup", str(by_file), "--check"), "the passphrase is wrong")
    secret.write_text("short\n")
    short = at.manage("backup", str(tmp_path / "x"), "--passphrase-file", str(secret))
    refused(short, "at least 12")
    at.environ["SLIPWAY_BACKUP_PASSPHRASE"] = ""
    try:
        refused(at.manage("backup", str(tmp_path / "y")), "needs a passphrase")
    finally:
        at.environ["SLIPWAY_BACKUP_PASSPHRASE"] = PASSPHRASE
    assert not any((tmp_path / name).exists() for name in "xy")


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
