"""What is to be hidden never reaches Parquet, whatever language a client speaks."""

from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from workers.gateway.capture_log.format import entry, pack_block
from workers.gateway.redaction import Redactor
from workers.gateway.shipper import ship

_SECRET = "Ada Lovelace"
_SIGNATURE = {
    "kind": "columns",
    "inputs": [{"name": "age", "datatype": "FP64"}, {"name": "name", "datatype": "BYTES"}],
}


def _hider(folder: Path, **hidden: str) -> Redactor:
    endpoint = {
        "id": "ep_1",
        "name": "shop",
        "hidden": hidden,
        "hiding_key": "key",
        "revisions": [{"id": "rev_1", "signature": _SIGNATURE}],
    }
    path = folder / "snapshot.json"
    path.write_bytes(orjson.dumps({"version": 1, "endpoints": [endpoint]}))
    made = Redactor(path)
    made.refresh()
    return made


def _kept(folder: Path, hider: Redactor, body: bytes, head: int = 0, status: int = 200) -> str:
    context = orjson.dumps(
        {"endpoint": "ep_1", "revision": "rev_1", "model": "m", "model_version": "1"}
    )
    # A failure is kept without what was said of it.
    response = (
        orjson.dumps({"predictions": [{"name": _SECRET, "score": 1}]}) if status == 200 else b""
    )
    kept = entry(b"prd_1", b"key_1", 10**18, 5, body, response, head, 0, 1, 0, status)
    segment = folder / "1.seg"
    segment.write_bytes(pack_block(context, [kept]))
    assert ship(segment, folder / "predictions", hider) == 1
    (path,) = (folder / "predictions").glob("*/*/*.parquet")
    (row,) = pq.read_table(path).to_pylist()
    assert row["request_bytes"] is None
    return f"{row['request']} {row['response']}"


@pytest.mark.parametrize("how", ["drop", "hash"])
@pytest.mark.parametrize(
    "body",
    [
        orjson.dumps({"dataframe_split": {"columns": ["age", "name"], "data": [[3, _SECRET]]}}),
        orjson.dumps({"dataframe_records": [{"age": 3, "name": _SECRET}]}),
        orjson.dumps({"instances": [[3, _SECRET]]}),
        orjson.dumps({"inputs": {"age": [3], "name": [_SECRET]}}),
        orjson.dumps(
            {"inputs": [{"name": "name", "datatype": "BYTES", "shape": [1], "data": [_SECRET]}]}
        ),
        f"age,name\n3,{_SECRET}\n".encode(),
    ],
)
def test_a_column_is_hidden_in_every_language(tmp_path: Path, body: bytes, how: str) -> None:
    kept = _kept(tmp_path, _hider(tmp_path, name=how), body)
    assert _SECRET not in kept
    assert ("hmac:" in kept) == (how == "hash")
    assert "hidden" not in kept


@pytest.mark.parametrize("status", [400, 500, 502, 504])
def test_a_column_is_hidden_in_what_failed(tmp_path: Path, status: int) -> None:
    body = orjson.dumps({"dataframe_records": [{"age": "three", "name": _SECRET}]})
    kept = _kept(tmp_path, _hider(tmp_path, name="hash"), body, status=status)
    assert _SECRET not in kept
    assert "hmac:" in kept
    body = orjson.dumps({"records": [{"age": "three", "nmae": _SECRET}]})
    (tmp_path / "under a wrong name").mkdir()
    kept = _kept(
        tmp_path / "under a wrong name", _hider(tmp_path, name="hash"), body, status=status
    )
    assert _SECRET not in kept


@pytest.mark.parametrize(
    "body",
    [
        orjson.dumps({"instances": [[1, 2, _SECRET]]}),
        orjson.dumps({"inputs": [[[_SECRET]]]}),
        orjson.dumps([_SECRET]),
        f"{_SECRET}\xff".encode("latin-1"),
        f"age,name\n3,x,{_SECRET}\n".encode(),
    ],
)
def test_what_cannot_be_told_apart_is_not_kept_at_all(tmp_path: Path, body: bytes) -> None:
    kept = _kept(tmp_path, _hider(tmp_path, name="hash"), body)
    assert _SECRET not in kept
    assert '{"hidden":true}' in kept


def test_tensors_as_bytes_are_not_kept(tmp_path: Path) -> None:
    body = b'{"inputs":[]}' + _SECRET.encode()
    kept = _kept(tmp_path, _hider(tmp_path, name="hash"), body, head=13)
    assert _SECRET not in kept


def test_equal_values_have_equal_hashes_and_rules_that_cannot_be_read_ship_nothing(
    tmp_path: Path,
) -> None:
    hider = _hider(tmp_path, name="hash")
    rules = hider.rules_of("ep_1")
    assert rules is not None
    body = orjson.dumps({"dataframe_records": [{"name": "a"}, {"name": "a"}, {"name": "b"}]})
    rows = orjson.loads(rules.hide("rev_1", body, 0, is_input=True)[0])["dataframe_records"]
    assert rows[0] == rows[1] != rows[2]
    (tmp_path / "snapshot.json").write_text("{")
    with pytest.raises(OSError, match="cannot be read"):
        hider.refresh()
    # An endpoint that is gone stays hidden for what still waits.
    (tmp_path / "snapshot.json").write_text('{"version": 2, "endpoints": []}')
    hider.refresh()
    assert hider.rules_of("ep_1") is not None
