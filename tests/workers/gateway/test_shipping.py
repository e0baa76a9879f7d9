"""A segment that one thread does not get done is taken over by the other, and shipped once."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from tests.workers.machines import ROOT, eventually
from workers.gateway.capture_log.format import AT_REST, AT_WORK, entry, pack_block, pack_plain_block
from workers.gateway.redaction import Redactor
from workers.gateway.shipper import ShipperThreads, merge_hours, ship
from workers.gateway.shipping_priority import Attempt, AttemptAbandoned

AT_NS = 1_700_000_000 * 10**9
_CONTEXT = orjson.dumps(
    {"endpoint": "ep_1", "revision": "rev_1", "model": "m", "model_version": "1"}
)


def _segment(path: Path, count: int = 3) -> Path:
    entries = [
        entry(b"prd_%d" % number, b"key_1", AT_NS, 5, b'{"inputs":[[1]]}', b"", 0, 0, 1, 0, 200)
        for number in range(count)
    ]
    path.write_bytes(pack_block(_CONTEXT, entries))
    return path


def _files(predictions: Path) -> list[Path]:
    return [path for path in predictions.rglob("*") if path.is_file()]


def _shipped(predictions: Path) -> list[Path]:
    """Whole files alone: a thread that was given up may not have cleared its draft away yet."""
    return list(predictions.rglob("*.parquet"))


class Slow(Redactor):
    """Keeps the first thread that asks, as one that gets no processor, until it may go on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "snapshot.json")
        self.has_asked = threading.Event()
        self.may_go_on = threading.Event()

    def rules_of(self, endpoint_id: str) -> None:
        if not self.has_asked.is_set():
            self.has_asked.set()
            assert self.may_go_on.wait(60)


def _kept_by_the_calm_thread(folder: Path, root: Path) -> tuple[ShipperThreads, Slow]:
    """Return a crew whose calm thread has begun the only segment, and what keeps it."""
    slow = Slow(folder)
    crew = ShipperThreads(folder, root, slow)
    _segment(folder / "1.seg")
    crew.start_due()
    assert slow.has_asked.wait(60)
    return crew, slow


@pytest.mark.thorough
def test_the_shipper_says_when_it_works_and_that_goes_last(tmp_path: Path) -> None:
    folder, root = tmp_path / "capture", tmp_path / "predictions"
    command = [sys.executable, "-m", "workers.gateway.shipper", str(folder), str(root)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}"}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shipper:
        assert shipper.stdin is not None
        assert shipper.stdout is not None
        eventually(folder.exists, within_s=30)
        draft = _segment(tmp_path / "1.new")
        for number in (1, 2):
            shutil.copy(draft, folder / "1.new")
            (folder / "1.new").rename(folder / f"{number}.seg")
            assert shipper.stdout.readline() == AT_WORK
            assert shipper.stdout.readline() == AT_REST
            assert len(_shipped(root)) == number
        policies = {
            os.sched_getscheduler(int(task.name))
            for task in Path(f"/proc/{shipper.pid}/task").iterdir()
        }
        assert os.SCHED_IDLE in policies
        shipper.stdin.close()
        assert shipper.wait(60) == 0


def test_a_segment_of_many_pieces_and_groups_is_shipped_whole(tmp_path: Path) -> None:
    segment, root = tmp_path / "1.seg", tmp_path / "predictions"
    body = b'{"inputs":[[' + b",".join([b"1.5"] * 4096) + b"]]}"
    names = [b"prd_%026d" % number for number in range(600)]
    entries = [entry(name, b"key_1", AT_NS, 5, body, name, 0, 0, 0, 0, 200) for name in names]
    blocks = [pack_block(_CONTEXT, entries[at : at + 7]) for at in range(0, len(entries), 7)]
    segment.write_bytes(b"".join(blocks))
    assert ship(segment, root) == 600
    (path,) = _files(root)
    assert pq.ParquetFile(path).num_row_groups > 1
    shipped = pq.read_table(path)
    assert shipped["prediction_id"].to_pylist() == [name.decode() for name in names]
    assert shipped["response"].to_pylist() == shipped["prediction_id"].to_pylist()
    assert set(shipped["request"].to_pylist()) == {body.decode()}


@pytest.mark.parametrize("keys", [[b"key_1"] * 5, [b"key_1", b"k" * 64, b"a", b"key_1", b"b"]])
@pytest.mark.parametrize("is_hidden", [False, True])
def test_plain_blocks_become_the_same_rows_as_others(
    tmp_path: Path, keys: list[bytes], is_hidden: bool
) -> None:
    hider = None
    if is_hidden:
        hidden = {"id": "ep_1", "name": "m", "hidden": {"x": "drop"}, "hiding_key": "key"}
        (tmp_path / "snapshot.json").write_bytes(
            orjson.dumps({"version": 1, "endpoints": [hidden | {"revisions": [{"id": "rev_1"}]}]})
        )
        hider = Redactor(tmp_path / "snapshot.json")
        hider.refresh()
    rows, plain = [], []
    # Three moments, of two hours; one body is no text, and some are empty.
    for offset_s in (0, 1, 3600):
        at_ns = AT_NS + offset_s * 10**9
        names = [b"prd_%026d" % (10 * offset_s + number) for number in range(5)]
        bodies = [b'{"inputs":[[%d]]}' % number for number in range(3)] + [b"\xff{", b""]
        answers = [b"", b'{"predictions":[[1]]}', *bodies[2:]]
        took_us = [5, 4, 3, 2, 2**32 - 1]
        entries = zip(names, keys, took_us, bodies, answers, strict=True)
        rows.append(
            pack_block(
                _CONTEXT,
                [
                    entry(name, key, at_ns, us, body, answer, 0, 0, 0, 0, 200)
                    for name, key, us, body, answer in entries
                ],
            )
        )
        plain.append(pack_plain_block(_CONTEXT, at_ns, names, keys, took_us, bodies, answers))
    tables = []
    for name, blocks in (("rows", rows), ("plain", plain), ("both", [rows[0], *plain[1:]])):
        (tmp_path / "1.seg").write_bytes(b"".join(blocks))
        assert ship(tmp_path / "1.seg", tmp_path / name, hider) == 15
        files = sorted((tmp_path / name).glob("*/*/*.parquet"))
        assert len(files) == 2
        tables.append([row for path in files for row in pq.read_table(path).to_pylist()])
    assert tables[0] == tables[1] == tables[2]
    assert {row["key_id"] for row in tables[0]} == {key.decode() for key in keys}
    assert {row["status"] for row in tables[0]} == {200}


def test_a_part_that_outlives_its_merge_is_not_merged_again(tmp_path: Path) -> None:
    root = tmp_path / "predictions"
    for name in ("1", "2"):
        assert ship(_segment(tmp_path / f"{name}.seg"), root) == 3
    first, _ = sorted(_shipped(root))
    content = first.read_bytes()
    assert merge_hours(root, before_unix_s=AT_NS / 10**9 + 7200) == 1
    # As when the shipper is killed before it has removed the parts.
    first.write_bytes(content)
    merge_hours(root, before_unix_s=AT_NS / 10**9 + 7200)
    (merged,) = _shipped(root)
    assert merged.name == "hour.parquet"
    assert len(pq.read_table(merged)) == 6


def test_what_was_given_up_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    class Meanwhile(Redactor):
        """Where another thread takes over after the first rows were turned into columns."""

        def rules_of(self, endpoint_id: str) -> None:
            assert attempt.abandon()

    attempt = Attempt(".calm")
    segment, root = _segment(tmp_path / "1.seg"), tmp_path / "predictions"
    with pytest.raises(AttemptAbandoned):
        ship(segment, root, Meanwhile(tmp_path / "snapshot.json"), attempt)
    assert segment.exists()
    assert not _files(root)
    assert ship(segment, root) == 3
    assert len(_files(root)) == 1


def test_what_has_ended_cannot_be_given_up(tmp_path: Path) -> None:
    attempt = Attempt(".calm")
    assert ship(_segment(tmp_path / "1.seg"), tmp_path / "predictions", None, attempt) == 3
    assert not attempt.abandon()


def test_what_a_killed_thread_left_behind_goes_with_the_next_try(tmp_path: Path) -> None:
    root = tmp_path / "predictions"
    segment = _segment(tmp_path / "1.seg")
    assert ship(segment, root, None, Attempt(".calm")) == 3
    (path,) = _files(root)
    path.rename(path.with_name(f".{path.name}.calm.part"))
    assert ship(_segment(segment), root) == 3
    assert _files(root) == [path]


def test_a_segment_the_calm_thread_does_not_get_done_is_shipped_by_the_other(
    tmp_path: Path,
) -> None:
    root, segment = tmp_path / "predictions", tmp_path / "1.seg"
    crew, slow = _kept_by_the_calm_thread(tmp_path, root)
    crew.start_due()
    assert not _files(root), "it is not late yet"
    an_hour_ago = time.time() - 3600
    os.utime(segment, (an_hour_ago, an_hour_ago))
    crew.start_due()
    eventually(lambda: crew.wait(0.1) and not segment.exists(), what="it is shipped")
    (path,) = _shipped(root)
    assert pq.read_table(path)["prediction_id"].to_pylist() == ["prd_0", "prd_1", "prd_2"]
    slow.may_go_on.set()  # now the calm thread goes on, and finds that it is not wanted
    _segment(tmp_path / "2.seg")

    def both() -> bool:
        crew.start_due()
        crew.wait(0.1)
        return len(_shipped(root)) == 2

    eventually(both, what="the next segment is shipped, too")
    assert not list(tmp_path.glob("*.seg"))


def test_the_last_look_waits_for_no_calm_thread(tmp_path: Path) -> None:
    root, segment = tmp_path / "predictions", tmp_path / "1.seg"
    crew, slow = _kept_by_the_calm_thread(tmp_path, root)
    last = threading.Thread(target=crew.finish, daemon=True)
    last.start()
    last.join(60)
    slow.may_go_on.set()
    assert not last.is_alive()
    assert not segment.exists()
    assert len(_shipped(root)) == 1
