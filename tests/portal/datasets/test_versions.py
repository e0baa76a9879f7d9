"""Versions of datasets through the REST API: made, seen, compared, deleted, freed."""

import io
import json
import tarfile
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from django.http import StreamingHttpResponse
from pyarrow import parquet

from portal.core import clock
from portal.datasets.housekeeping import free_unused
from portal.datasets.models import Entry, Piece, Version
from portal.storage.models import StoredFile
from portal.storage.usage import stored_bytes
from slipway.schemas.datasets import PIECE_BYTES
from tests.personas import Api, Personas, json_of
from tests.portal.datasets.pushing import AT, begin, close, fill, frames, named, push, send, sha
from tests.turns import thorough_after

TRAIN = b"x,label\n" + b"".join(b"%d,%d\n" % (n, n % 10) for n in range(1000))


def streamed(answer: Any) -> bytes:
    assert isinstance(answer, StreamingHttpResponse), answer.content
    return answer.getvalue()


def test_a_version_is_seen_with_its_schema_and_statistics_once_it_is_checked(
    people: Personas,
) -> None:
    bob = Api.of(people.bob)
    draft = begin(bob)
    fill(bob, draft, {"train.csv": TRAIN, "images/1.png": b"not a table", "empty": b""})
    assert json_of(bob.get(f"{AT}/digits"))["latest"] is None
    assert bob.get(f"{AT}/digits/versions/latest").status_code == 404
    version = close(bob, draft)
    assert (version["state"], version["reference"]) == ("ready", "digits:1"), version
    assert (version["files"], version["rows"]) == (3, 1000)
    assert json_of(bob.get(f"{AT}/digits/versions/latest"))["id"] == version["id"]
    (table,) = json_of(bob.get(f"{AT}/digits/versions/1/tables"))
    x, label = table["statistics"]["columns"]
    assert (x["type"], x["number"]["min"], x["number"]["max"]) == ("int64", 0, 999)
    assert x["number"]["mean"] == pytest.approx(499.5)
    assert x["number"]["std"] == pytest.approx(288.675, abs=0.001)
    assert sum(part["count"] for part in x["number"]["histogram"]) == 1000
    assert (label["distinct"], label["top"][0]["count"]) == (10, 100)
    preview = json_of(bob.get(f"{AT}/digits/versions/1/preview?offset=10&limit=2"))
    assert (preview["columns"], preview["rows"]) == (["x", "label"], [["10", "0"], ["11", "1"]])
    paths = [file["path"] for file in json_of(bob.get(f"{AT}/digits/versions/1/files"))["items"]]
    assert paths == ["empty", "images/1.png", "train.csv"]
    archive = streamed(bob.get(f"{AT}/digits/versions/1/archive"))
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        taken = {member.name: opened.extractfile(member) for member in opened}
        assert {name: file.read() for name, file in taken.items() if file} == {
            "train.csv": TRAIN,
            "images/1.png": b"not a table",
            "empty": b"",
        }
    part = streamed(bob.get(f"{AT}/digits/versions/1/content?path=train.csv&offset=8"))
    assert part == TRAIN[8:]


def test_parquet_and_json_lines_are_tables_and_numbered_files_are_parts_of_one(
    people: Personas,
) -> None:
    bob = Api.of(people.bob)
    packed = io.BytesIO()
    parquet.write_table(pa.table({"a": [1, 2], "tags": [["x"], []]}), packed)
    version = push(
        bob,
        {
            "part-1.jsonl": b'{"a": 1, "b": "x"}\n',
            "part-2.jsonl": b'{"a": 2.5, "b": null}\n',
            "all.parquet": packed.getvalue(),
        },
    )
    assert (version["state"], version["rows"]) == ("ready", 4), version
    packed_table, lines = json_of(bob.get(f"{AT}/digits/versions/1/tables"))
    assert [column["kind"] for column in packed_table["statistics"]["columns"]] == [
        "integer",
        "other",
    ]
    assert (lines["name"], lines["files"]) == ("part-*.jsonl", 2)
    assert lines["statistics"]["columns"][0]["type"] == "double"
    assert lines["statistics"]["columns"][1]["missing"] == 1


@pytest.mark.thorough
def test_bad_rows_are_refused_with_line_and_column_unless_they_are_allowed(
    people: Personas,
) -> None:
    bob = Api.of(people.bob)
    bad = b'x,name\n1,"a\nb"\n2,b,c\noops,\xff\n' + b"3,c\n" * 3
    draft = begin(bob)
    fill(bob, draft, {"a.csv": b"".join([b"x,name\n", b"1,a\n" * 20_000, bad[7:]])})
    refused = close(bob, draft)
    assert (refused["state"], refused["number"], refused["bad_rows"]) == ("refused", None, 2)
    places = {(problem["line"], problem["column"]) for problem in refused["problems"]}
    assert places == {(20_004, None), (20_005, "name")}
    assert "line 20004" in refused["reason"]
    assert json_of(bob.get(f"{AT}/digits"))["versions"] == 0
    taken = close(bob, draft, allow_bad_rows=True)
    assert (taken["state"], taken["bad_rows"], taken["rows"]) == ("ready", 2, 20_004)
    (table,) = json_of(bob.get(f"{AT}/digits/versions/1/tables"))
    assert table["statistics"]["columns"][0]["type"] == "int64", "rows are left out, never columns"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    thorough_after(
        2,
        [
            ("a.csv", b'x\n"open', "not CSV"),
            ("a.csv", b"x,x\n1,2\n", "twice"),
            ("a.csv", b"x\n\x00\n", "NUL"),
            ("a.jsonl", b'{"a": 1}\n{"a": }\n', "not JSON"),
            ("a.jsonl", b"[" * 100_000 + b"\n", "nested"),
            ("a.parquet", b"PAR1 and then nothing", "not Parquet"),
        ],
    ),
)
def test_what_is_no_table_says_so(
    people: Personas, name: str, content: bytes, message: str
) -> None:
    refused = push(Api.of(people.bob), {name: content})
    assert refused["state"] == "refused"
    assert message in refused["problems"][0]["message"]


def test_the_same_bytes_are_sent_and_kept_once_and_make_no_second_version(
    people: Personas,
) -> None:
    bob = Api.of(people.bob)
    push(bob, {"a.bin": b"same", "b.bin": b"same", "c.bin": b"other"})
    assert Piece.objects.count() == 2
    assert StoredFile.objects.filter(name__startswith="dataset-").count() == 1
    again = begin(bob)
    answer = bob.post(f"{again}/files", {"files": [named("a.bin", b"same")]})
    assert json_of(answer)["missing"] == []
    fill(bob, again, {"b.bin": b"same", "c.bin": b"other"})
    same = close(bob, again)
    assert (same["state"], same["same_as"]) == ("refused", 1)
    charlie = Api.of(people.charlie)
    charlie.post("projects/other/datasets", {"name": "digits"})
    draft = json_of(charlie.post("projects/other/datasets/digits/versions", {}))["id"]
    missing = charlie.post(
        f"projects/other/datasets/digits/versions/{draft}/files",
        {"files": [named("a.bin", b"same")]},
    )
    assert json_of(missing)["missing"] == [sha(b"same")]


def test_a_large_file_goes_up_in_pieces_and_an_upload_that_was_cut_off_goes_on(
    people: Personas,
) -> None:
    bob = Api.of(people.bob)
    large = bytes(range(256)) * (PIECE_BYTES // 256) + b"the rest"
    draft = begin(bob)
    body = {"files": [named("large.bin", large)]}
    first, second = json_of(bob.post(f"{draft}/files", body))["missing"]
    cut = frames(large[:PIECE_BYTES], large[PIECE_BYTES:])[:-3]
    assert send(bob, f"{AT}/digits/pieces", cut).status_code == 422
    assert Piece.objects.missing().count() == 2
    assert send(bob, f"{AT}/digits/pieces", frames(large[:PIECE_BYTES])).status_code == 200
    early = bob.post(f"{draft}/commit", {})
    assert (early.status_code, json_of(early)["code"]) == (409, "bytes_missing")
    assert json_of(bob.get(draft))["state"] == "draft"
    later = begin(bob)
    assert json_of(bob.post(f"{later}/files", body))["missing"] == [second]
    assert first == sha(large[:PIECE_BYTES])
    assert send(bob, f"{AT}/digits/pieces", frames(b"the rest")).status_code == 200
    assert close(bob, later)["state"] == "ready"
    (line,) = streamed(bob.get(f"{AT}/digits/versions/1/manifest")).splitlines()
    report = json.loads(line)
    assert report["digest"] == sha(bytes.fromhex(first) + bytes.fromhex(second))
    end = streamed(bob.get(f"{AT}/digits/versions/1/content?path=large.bin&offset={PIECE_BYTES}"))
    assert end == b"the rest"


def test_files_without_bytes_are_named_or_counted(people: Personas) -> None:
    bob = Api.of(people.bob)
    draft = begin(bob)
    files = [named(f"{number}{'x' * 150}.bin", f"{number}".encode()) for number in range(8)]
    bob.post(f"{draft}/files", {"files": files})
    problem = json_of(bob.post(f"{draft}/commit", {}))
    assert problem["detail"].endswith(f"4{'x' * 150}.bin and 3 more.")


def test_a_file_may_come_piece_by_piece_without_its_digest(people: Personas) -> None:
    bob = Api.of(people.bob)
    large = b"x" * PIECE_BYTES + b"end"
    draft = begin(bob)
    at = f"{draft}/append?path=a/large.bin&size_bytes={len(large)}"
    assert json_of(send(bob, f"{at}&offset=0", large[:PIECE_BYTES]))["received_bytes"] == (
        PIECE_BYTES
    )
    wrong = send(bob, f"{at}&offset=5", b"end")
    assert (wrong.status_code, json_of(wrong)["code"]) == (409, "wrong_offset")
    assert json_of(bob.post(f"{draft}/commit", {}))["code"] == "bytes_missing"
    assert send(bob, f"{at}&offset={PIECE_BYTES}", b"ende").status_code == 422
    assert send(bob, f"{at}&offset={PIECE_BYTES}", b"end").status_code == 200
    assert send(bob, f"{draft}/append?path=e&size_bytes=0&offset=0", b"").status_code == 200
    version = close(bob, draft)
    assert (version["state"], version["files"]) == ("ready", 2)
    assert streamed(bob.get(f"{AT}/digits/versions/1/content?path=a/large.bin")) == large
    closed = send(bob, f"{draft}/append?path=e&size_bytes=1&offset=0", b"x")
    assert (closed.status_code, json_of(closed)["code"]) == (409, "not_a_draft")


@pytest.mark.parametrize(
    "path",
    ["../up", "/abs", "a//b", "a/./b", "a\\b", "C:/x", "a/..", "new\nline", "x" * 300],
)
def test_a_path_that_leads_out_of_a_dataset_is_refused(people: Personas, path: str) -> None:
    bob = Api.of(people.bob)
    draft = begin(bob)
    assert bob.post(f"{draft}/files", {"files": [named(path, b"x")]}).status_code == 422
    assert Entry.objects.count() == 0


def test_a_file_that_is_a_folder_too_is_refused(people: Personas) -> None:
    refused = push(Api.of(people.bob), {"a": b"1", "a/b": b"2"})
    assert (refused["state"], "file and a folder" in refused["reason"]) == ("refused", True)


@pytest.mark.parametrize(
    "body",
    [
        b"short",
        b"\0" * 32 + (4).to_bytes(8) + b"fake",
        b"\0" * 32 + (2**40).to_bytes(8),
        frames(b"ok") + b"\0" * 39,
    ],
)
def test_broken_frames_store_nothing(people: Personas, body: bytes) -> None:
    bob = Api.of(people.bob)
    draft = begin(bob)
    bob.post(f"{draft}/files", {"files": [named("a", b"ok")]})
    assert send(bob, f"{AT}/digits/pieces", body).status_code == 422
    assert Piece.objects.missing().count() == 1


@pytest.mark.thorough
def test_two_versions_are_compared_by_files_rows_types_and_values(people: Personas) -> None:
    bob = Api.of(people.bob)
    push(bob, {"t.csv": b"a,b,c\n1,x,1\n2,x,1\n3,y,1\n", "same": b"1", "gone": b"2"})
    push(bob, {"t.csv": b"a,b,d\n11,x,1\n12,y,1\n13,y,1\n14,y,1\n", "same": b"1", "new": b"3"})
    changes = json_of(bob.get(f"{AT}/digits/versions/2/changes"))
    assert [changes[kind]["paths"] for kind in ("added", "removed", "changed")] == [
        ["new"],
        ["gone"],
        ["t.csv"],
    ]
    (table,) = changes["tables"]
    assert (table["rows_before"], table["rows_after"]) == (3, 4)
    by_name = {column["name"]: column for column in table["columns"]}
    assert (by_name["c"]["change"], by_name["d"]["change"]) == ("removed", "added")
    assert by_name["a"]["mean_after"] == pytest.approx(12.5)
    assert by_name["a"]["mean_shift"] > 10
    assert by_name["b"]["share_shift"] == pytest.approx(2 / 3 - 1 / 4)
    assert bob.get(f"{AT}/digits/versions/1/changes").status_code == 404


def test_deleting_can_be_undone_and_later_frees_the_bytes(
    people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = Api.of(people.bob)
    push(bob, {"a": b"one"})
    push(bob, {"a": b"two"})
    assert bob.delete(f"{AT}/digits/versions/1").status_code == 204
    assert bob.get(f"{AT}/digits/versions/1").status_code == 404
    assert json_of(bob.post(f"{AT}/digits/versions/1/restore"))["state"] == "ready"
    assert bob.delete(f"{AT}/digits/versions/2").status_code == 204
    assert json_of(bob.get(f"{AT}/digits/versions/latest"))["number"] == 1
    given_up = begin(bob)
    assert free_unused().versions == 0
    later = clock.now() + timedelta(days=8)
    monkeypatch.setattr(clock, "now", lambda: later)
    freed = free_unused()
    assert (freed.versions, freed.pieces, freed.size_bytes) == (2, 1, 3)
    assert bob.post(f"{AT}/digits/versions/2/restore").status_code == 404
    assert bob.get(given_up).status_code == 404
    assert streamed(bob.get(f"{AT}/digits/versions/1/content?path=a")) == b"one"
    assert push(bob, {"a": b"two"})["number"] == 3, "a number is never given twice"
    assert bob.delete(f"{AT}/digits").status_code == 204
    assert bob.get(f"{AT}/digits").status_code == 404
    assert json_of(bob.get(AT))["items"] == []
    assert json_of(bob.post(f"{AT}/digits/restore"))["versions"] == 2


def test_what_a_dataset_keeps_is_counted_once_for_its_project_until_it_is_freed(
    people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spend charges what `stored_bytes` says."""
    bob = Api.of(people.bob)

    def stored() -> int:
        return sum(sizes.get(people.vision.pk, 0) for sizes in stored_bytes().values())

    push(bob, {"a": b"x" * 1000, "b": b"x" * 1000, "c": b"y" * 500})
    push(bob, {"a": b"x" * 1000, "c": b"z" * 50})
    assert stored() == 1550, "bytes that files and versions share count once"
    bob.delete(f"{AT}/digits")
    assert stored() == 1550, "what can be brought back is kept"
    later = clock.now() + timedelta(days=8)
    monkeypatch.setattr(clock, "now", lambda: later)
    free_unused()
    assert stored() == 0


def test_a_dataset_is_out_of_reach_for_strangers_and_read_only_for_viewers(
    people: Personas,
) -> None:
    bob, vera, charlie = Api.of(people.bob), Api.of(people.vera), Api.of(people.charlie)
    version = push(bob, {"a": b"one"})
    for path in (AT, f"{AT}/digits", f"{AT}/digits/versions/1", f"{AT}/digits/versions/1/tables"):
        assert (vera.get(path).status_code, charlie.get(path).status_code) == (200, 404)
    theirs = f"projects/other/datasets/digits/versions/{version['id']}"
    charlie.post("projects/other/datasets", {"name": "digits"})
    assert charlie.get(theirs).status_code == 404
    assert charlie.get("projects/other/datasets/digits/versions/1").status_code == 404
    assert charlie.delete(theirs).status_code == 404
    assert vera.post(f"{AT}/digits/versions", {}).status_code == 403
    assert vera.delete(f"{AT}/digits/versions/1").status_code == 403
    assert Version.objects.get(pk=version["id"]).state == "ready"
