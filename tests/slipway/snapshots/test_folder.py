"""Which files of a folder travel: usual suspects, secrets, links, limits, hostile names."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipway import errors
from slipway.snapshots import ExcludedFile, limits, take_snapshot
from tests.slipway.snapshots.folders import git, make_repository, unpacked, write_tree

NAMES = st.text(
    alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="/\0"),
    min_size=1,
    max_size=12,
).filter(lambda name: name not in (".", ".."))


def names_of(folder: Path, **settings: object) -> set[str]:
    with take_snapshot(folder, **settings) as snapshot:  # type: ignore[arg-type]
        return set(unpacked(snapshot))


def test_what_is_never_code_stays_here(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "train.py": "",
            "__pycache__/train.cpython-311.pyc": "",
            "pkg/old.pyc": "",
            "node_modules/x/index.js": "",
            ".venv/bin/python": "",
            "my-env/pyvenv.cfg": "",
            "my-env/lib/x.py": "",
            "env/world.py": "",
            ".ipynb_checkpoints/a.ipynb": "",
        },
    )
    assert names_of(tmp_path) == {"train.py", "env/world.py"}
    git(tmp_path, "init", "-q")
    assert names_of(tmp_path) == {"train.py", "env/world.py"}, "untracked in git as well"


def test_an_own_ignore_file_takes_out_what_git_keeps(tmp_path: Path) -> None:
    repository = make_repository(
        tmp_path, {"a.py": "", "data/x.csv": "", "sub/b.py": "", "sub/.slipwayignore": "/b.py\n"}
    )
    (repository / ".slipwayignore").write_text("data/\n")
    assert names_of(repository) == {"a.py", ".slipwayignore", "sub/.slipwayignore"}
    (repository / ".git").rename(tmp_path.parent / "elsewhere.git")
    assert names_of(repository) == {"a.py", ".slipwayignore", "sub/.slipwayignore"}


def test_a_secret_travels_only_when_it_is_asked_for(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "", ".env": "K=v", "keys/x.pem": "", ".gitignore": "run.json\n"})
    write_tree(tmp_path, {"run.json": ""})
    with take_snapshot(tmp_path) as snapshot:
        assert set(unpacked(snapshot)) == {"a.py", ".gitignore"}
        assert snapshot.left_out == (
            ExcludedFile(".env", "looks like a secret"),
            ExcludedFile("keys/x.pem", "looks like a secret"),
        )
    assert names_of(tmp_path, include=[".env", "keys", "run.json"]) == {
        *("a.py", ".gitignore", ".env", "keys/x.pem", "run.json")
    }
    for outside in ("../x", "none.py", "/etc/passwd"):
        with pytest.raises(errors.InvalidInput, match="is not in the folder"):
            take_snapshot(tmp_path, include=[outside])


def test_a_link_that_stays_inside_becomes_what_it_leads_to(tmp_path: Path) -> None:
    write_tree(tmp_path, {"conf/a.yaml": "a", "conf/b.yaml": "b", "src/m.py": "m", "x.env": "s"})
    (tmp_path / "current.yaml").symlink_to("conf/a.yaml")
    (tmp_path / "src/conf").symlink_to("../conf")
    (tmp_path / "src/up").symlink_to("..")
    (tmp_path / "nothing").symlink_to("gone")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "sneaky.txt").symlink_to("x.env")
    with take_snapshot(tmp_path) as snapshot:
        contents = unpacked(snapshot)
        reasons = {item.path: item.reason for item in snapshot.left_out}
    assert contents["current.yaml"] == b"a"
    assert contents["src/conf/b.yaml"] == b"b"
    assert set(contents) == {
        *("conf/a.yaml", "conf/b.yaml", "src/m.py", "current.yaml"),
        *("src/conf/a.yaml", "src/conf/b.yaml"),
    }
    assert reasons == {
        "x.env": "looks like a secret",
        "sneaky.txt": "links to x.env, which is left out",
        "nothing": "links to nothing",
        "circle": "links to nothing",
        "src/up": "links to a folder it lies in",
    }


@pytest.mark.parametrize("target", ["/etc/passwd", "../../etc", "/"])
def test_a_link_that_leads_out_is_refused_by_name(tmp_path: Path, target: str) -> None:
    code = write_tree(tmp_path / "a" / "code", {"a.py": ""})
    (code / "data").symlink_to(target)
    with pytest.raises(errors.InvalidInput, match="Links lead out") as caught:
        take_snapshot(code)
    assert caught.value.errors[0].field == "data"
    assert ".slipwayignore" in (caught.value.next_step or "")
    (code / ".slipwayignore").write_text("data\n")
    assert names_of(code) == {"a.py", ".slipwayignore"}


def test_a_sibling_with_the_same_beginning_is_outside(tmp_path: Path) -> None:
    code = write_tree(tmp_path / "code", {"a.py": ""})
    write_tree(tmp_path / "code-2", {"b.py": ""})
    (code / "b.py").symlink_to("../code-2/b.py")
    with pytest.raises(errors.InvalidInput, match="Links lead out"):
        take_snapshot(code)


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": ""})
    os.mkfifo(tmp_path / "pipe")
    with take_snapshot(tmp_path) as snapshot:
        assert set(unpacked(snapshot)) == {"a.py"}
        assert snapshot.left_out == (ExcludedFile("pipe", "is no ordinary file"),)


def test_data_is_refused_with_the_five_largest_named(tmp_path: Path) -> None:
    write_tree(tmp_path, {f"data/part-{i}.bin": b"x" * (1000 * i) for i in range(1, 8)})
    write_tree(tmp_path, {"train.py": "x"})
    with pytest.raises(errors.TooLarge) as caught:
        take_snapshot(tmp_path, limit_bytes=10_000)
    error = caught.value
    assert [fault.field for fault in error.errors] == [
        f"data/part-{i}.bin" for i in (7, 6, 5, 4, 3)
    ]
    assert error.errors[0].message == "7.0 kB"
    assert "28.0 kB in 8 files, and 10.0 kB may travel; the folder data holds most" in str(error)
    assert "echo 'data/part-7.bin' >> .slipwayignore" in (error.next_step or "")
    assert "up to 500 MB" in (error.next_step or "")
    (tmp_path / ".slipwayignore").write_text("data/\n")
    assert names_of(tmp_path, limit_bytes=10_000) == {"train.py", ".slipwayignore"}


def test_more_than_a_server_takes_is_refused_whatever_is_allowed(tmp_path: Path) -> None:
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(limits.HARD_LIMIT_BYTES + 1)
    with pytest.raises(errors.TooLarge, match=r"500 MB may travel") as caught:
        take_snapshot(tmp_path, limit_bytes=10**12)
    assert "no snapshot may be larger" in (caught.value.next_step or "")


def test_more_files_than_code_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipway.snapshots.folder.MAX_FILES", 20)
    write_tree(tmp_path, {f"images/{i}.png": "" for i in range(21)})
    with pytest.raises(errors.TooLarge, match="more than code") as caught:
        take_snapshot(tmp_path)
    assert "images" in [fault.field for fault in caught.value.errors]
    git(tmp_path, "init", "-q")
    with pytest.raises(errors.TooLarge):
        take_snapshot(tmp_path)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("a\nb.py", "U+000A"),
        ("\x1b[2Jx.py", "U+001B"),
        ("a\u202egnp.py", "U+202E"),
        ("a\\b.py", "backslash"),
        ("C:evil.py", "drive of Windows"),
        (os.fsdecode(b"\xff.py"), "U+DCFF"),
        ("/".join(["d"] * 40) + "/x.py", "folders deep"),
    ],
)
def test_a_name_that_cannot_travel_is_refused_in_words(
    tmp_path: Path, name: str, fault: str
) -> None:
    write_tree(tmp_path, {name: ""})
    for _ in ("without git", "with git"):
        with pytest.raises(errors.InvalidInput) as caught:
            take_snapshot(tmp_path)
        assert fault in caught.value.message
        assert all(character.isprintable() for character in caught.value.message)
        git(tmp_path, "init", "-q")


def test_names_that_are_one_file_elsewhere_are_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, {"Model.py": "", "model.py": ""})
    if len(list(tmp_path.iterdir())) == 2:
        with pytest.raises(errors.InvalidInput, match="the same file as"):
            take_snapshot(tmp_path)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    tree=st.dictionaries(
        st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=50), max_size=6
    )
)
def test_any_folder_is_packed_the_same_twice_or_refused(
    tree: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    digests = []
    for order in (list(tree), list(reversed(tree))):
        folder = tmp_path_factory.mktemp("tree")
        for name in order:
            try:
                write_tree(folder, {name: tree[name]})
            except OSError:
                return  # a name that is a file and a folder, or too long for this disk
        try:
            with take_snapshot(folder) as snapshot:
                digests.append(snapshot.digest)
                assert all(tree[name] == content for name, content in unpacked(snapshot).items())
        except errors.SlipwayError as error:
            digests.append(error.code if error.next_step else "no next step")
    assert digests[0] == digests[1] != "no next step"
