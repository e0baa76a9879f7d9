"""Values of tables: what the page of a version shows is what a job reads, and nothing is lost."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import slipway
from slipway import errors
from tests.portal.datasets.agreeing import push_and_read

Place = tuple[slipway.Client, str, Path]


@pytest.fixture
def place(alice: slipway.Client, project: str, tmp_path: Path) -> Place:
    return alice, project, tmp_path / "data"


def lines(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def packed(table: pa.Table) -> bytes:
    sink = BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


@pytest.mark.thorough
def test_unsigned_ids_stay_exact(place: Place) -> None:
    ids = [18446744073709551615, 18446744073709551613, 9223372036854775809]
    text = "hash,label\n" + "".join(f"{number},1\n" for number in ids)
    both = push_and_read(*place, {"ids.csv": text.encode()})
    assert (both.types["hash"], both.values["hash"]) == ("uint64", ids)
    hashes = both.table.statistics.columns[0]
    assert hashes.number is not None
    assert (hashes.number.exact_min, hashes.number.exact_max) == (str(ids[2]), str(ids[0]))
    assert hashes.distinct == 3


@pytest.mark.thorough
def test_unsigned_ids_in_json_lines_stay_exact(place: Place) -> None:
    ids = [18446744073709551615, 18446744073709551613]
    both = push_and_read(*place, {"ids.jsonl": lines(*({"id": number} for number in ids))})
    assert (both.types, both.values) == ({"id": "uint64"}, {"id": ids})


@pytest.mark.thorough
def test_whole_numbers_beyond_64_bits_are_text(place: Place) -> None:
    numbers = ["184467440737095516150", "-9223372036854775809"]
    both = push_and_read(*place, {"n.csv": ("n\n" + "\n".join(numbers) + "\n").encode()})
    assert (both.types, both.values) == ({"n": "string"}, {"n": numbers})
    assert both.table.table_schema is not None
    assert "more digits" in both.table.table_schema.columns[0].note


@pytest.mark.thorough
def test_leading_zeros_stay(place: Place) -> None:
    rows = [f"{n},{n:05},00431{n:06},{n}.50,00{n}" for n in range(1, 41)]
    text = "\n".join(["customer,zip,phone,amount,code", *rows, ""])
    both = push_and_read(*place, {"people.csv": text.encode()})
    assert both.types == {
        "customer": "int64",
        "zip": "string",
        "phone": "string",
        "amount": "double",
        "code": "string",
    }
    assert both.values["zip"][0] == "00001"
    assert both.values["phone"][0] == "00431000001"
    assert both.table.table_schema is not None
    assert "'00001' would lose its zeros" in both.table.table_schema.columns[1].note


@pytest.mark.thorough
def test_leading_zeros_are_numbers_where_that_is_declared(place: Place) -> None:
    both = push_and_read(
        *place, {"a.csv": b"zip,n\n01234,007\n00042,1\n"}, types={"n": "int32", "zip": "string"}
    )
    assert (both.types, both.values) == (
        {"zip": "string", "n": "int32"},
        {"zip": ["01234", "00042"], "n": [7, 1]},
    )


@pytest.mark.thorough
def test_a_leading_zero_that_comes_late_is_refused_with_its_line_and_the_setting(
    place: Place,
) -> None:
    text = b"zip\n" + b"10115\n" * 12_000 + b"01234\n"
    with pytest.raises(errors.InvalidInput) as refused:
        push_and_read(*place, {"a.csv": text})
    assert "a.csv, line 12002, column zip" in str(refused.value)
    assert "'01234'" in str(refused.value)
    assert "zip=string" in str(refused.value)
    both = push_and_read(*place, {"a.csv": text}, types={"zip": "string"})
    assert both.values["zip"][-1] == "01234"
    both = push_and_read(*place, {"a.csv": text}, allow_bad_rows=True)
    assert (both.types, len(both.rows), both.table.bad_rows) == ({"zip": "int64"}, 12_000, 1)


_TEXTS: list[tuple[list[str], str, list[object] | None]] = [
    (["1.50", "2"], "double", [1.5, 2.0]),
    (["0.30000000000000004", "1e-5"], "double", [0.30000000000000004, 1e-5]),
    (
        ["3.141592653589793116e+00", "1.000000000000000000e+00"],
        "double",
        [3.141592653589793, 1],
    ),
    (["12345678901234567.89", "1.5"], "string", ["12345678901234567.89", "1.5"]),
    (["9007199254740993", "0.5"], "string", ["9007199254740993", "0.5"]),
    (["1e400", "1"], "string", ["1e400", "1"]),
    (["inf", "-1.5"], "double", [float("inf"), -1.5]),
    (["true", "False"], "bool", [True, False]),
    (["true", "1"], "string", ["true", "1"]),
    (["+43", "1"], "string", ["+43", "1"]),
    (["1,5", "2"], "string", ["1,5", "2"]),
    (["2024-01-05", "2024-01-05 10:00:00.5"], "timestamp[us]", None),
    (["2024-01-05T10:00:00.1234567"], "string", ["2024-01-05T10:00:00.1234567"]),
    (["2024-02-30"], "string", ["2024-02-30"]),
    ([" padded ", "x"], "string", [" padded ", "x"]),
]


@pytest.mark.thorough
def test_a_type_is_inferred_only_where_it_gives_back_the_value(place: Place) -> None:
    """Each column has two values, the last one twice where there is one."""
    header = ",".join(f"c{at}" for at in range(len(_TEXTS)))
    rows = [",".join(f'"{texts[at % len(texts)]}"' for texts, _, _ in _TEXTS) for at in (0, 1)]
    both = push_and_read(*place, {"x.csv": "\n".join([header, *rows, ""]).encode()})
    for at, (texts, kind, values) in enumerate(_TEXTS):
        assert both.types[f"c{at}"] == kind, texts
        if values is not None:
            assert both.values[f"c{at}"] == (values * 2)[:2]


@pytest.mark.thorough
def test_whole_numbers_widen_only_without_loss(place: Place) -> None:
    begin = b"x\n" + b"1\n" * 12_000
    both = push_and_read(*place, {"x.csv": begin + b"1.5\n"})
    assert (both.types["x"], both.values["x"][-1], both.values["x"][0]) == ("double", 1.5, 1.0)
    both = push_and_read(*place, {"x.csv": begin + b"18446744073709551615\n"})
    assert (both.types["x"], both.values["x"][-1]) == ("uint64", 18446744073709551615)
    large = b"x\n" + b"9007199254740993\n" * 12_000
    with pytest.raises(errors.InvalidInput, match=r"line 12002, column x.*'1\.5'"):
        push_and_read(*place, {"x.csv": large + b"1.5\n"})


@pytest.mark.thorough
def test_large_whole_numbers_with_missing_ones_stay_exact_in_pandas(place: Place) -> None:
    both = push_and_read(*place, {"x.csv": b"x,y,z\n9007199254740993,1,a\n,,b\n5,2,c\n"})
    assert both.pandas["x"].tolist()[0] == 9007199254740993
    assert (str(both.pandas["x"].dtype), str(both.pandas["y"].dtype)) == ("Int64", "float64")


@pytest.mark.thorough
def test_decimals_are_exact(place: Place) -> None:
    prices = [Decimal("12345678901234567.89"), Decimal("0.10"), None]
    table = pa.table({"price": pa.array(prices, pa.decimal128(25, 2))})
    both = push_and_read(*place, {"p.parquet": packed(table)})
    assert (both.types["price"], both.values["price"]) == ("decimal128(25, 2)", prices)
    number = both.table.statistics.columns[0].number
    assert number is not None
    assert number.exact_max == "12345678901234567.89"
    both = push_and_read(
        *place,
        {"p.csv": b"price,x\n12345678901234567.89,1\n0.1,2\n,3\n"},
        types={"price": "decimal(25, 2)"},
    )
    assert both.values["price"] == prices
    with pytest.raises(errors.InvalidInput, match=r"line 2, column price.*'0\.105'"):
        push_and_read(*place, {"p.csv": b"price\n0.105\n"}, types={"price": "decimal(25, 2)"})


@pytest.mark.thorough
def test_words_for_missing_values_are_a_setting(place: Place) -> None:
    text = b"country,code,segment,answer,n\nNamibia,NA,None,null,1\nNorway,NO,Gold,yes,NA\n,,,,\n"
    both = push_and_read(*place, {"c.csv": text})
    assert both.values == {
        "country": ["Namibia", "Norway", None],
        "code": ["NA", "NO", None],
        "segment": ["None", "Gold", None],
        "answer": ["null", "yes", None],
        "n": [1, None, None],
    }
    schema = both.table.table_schema
    assert schema is not None
    assert (schema.missing_in_text, "NA" in schema.missing) == ([""], True)
    both = push_and_read(*place, {"c.csv": text}, missing=["NA", "null", ""])
    assert (both.values["code"], both.values["answer"]) == ([None, "NO", None], [None, "yes", None])
    assert both.values["segment"] == ["None", "Gold", None]
    both = push_and_read(*place, {"c.csv": text.replace(b",NA\n,,,,", b",2")}, missing=[])
    assert (both.values["code"][0], both.table.statistics.columns[1].missing) == ("NA", 0)


@pytest.mark.thorough
def test_times_have_one_type_with_their_zone(place: Place) -> None:
    ten = datetime(2024, 1, 5, 10, tzinfo=UTC)
    both = push_and_read(
        *place,
        {
            "t.jsonl": lines(
                {"at": "2024-01-05T10:00:00Z", "zip": "01234", "v": 1},
                {"at": "2024-01-05T12:00:00+02:00", "zip": "00042", "v": 2},
                {"at": None, "zip": "x", "v": 2},
            )
        },
    )
    assert both.types == {"at": "timestamp[us, tz=UTC]", "zip": "string", "v": "int64"}
    assert both.values["at"] == [ten, ten, None]
    assert both.table.statistics.columns[0].earliest == "2024-01-05T10:00:00+00:00"
    both = push_and_read(*place, {"t.csv": b"at,b\n2024-01-05T10:00:00Z,2024-01-05 10:00:00\n"})
    assert both.types == {"at": "timestamp[us, tz=UTC]", "b": "timestamp[us]"}
    with pytest.raises(errors.InvalidInput, match="line 12002, column at"):
        push_and_read(
            *place,
            {"t.csv": b"at\n" + b"2024-01-05T10:00:00Z\n" * 12_000 + b"2024-01-05T10:00:00\n"},
        )


@pytest.mark.thorough
def test_times_in_parquet_keep_unit_and_zone(place: Place) -> None:
    ns = pa.array([1704448800123456789, None], pa.timestamp("ns", "Europe/Vienna"))
    both = push_and_read(
        *place,
        {
            "t.parquet": packed(
                pa.table(
                    {
                        "at": ns,
                        "day": pa.array([19000, 1], pa.date32()),
                        "kind": pa.array(["a", "b"]).dictionary_encode(),
                    }
                )
            )
        },
    )
    assert both.types["at"] == "timestamp[ns, tz=Europe/Vienna]"
    assert both.types["day"] == "date32[day]"
    assert both.arrow.column("at").combine_chunks() == ns
    assert both.table.statistics.columns[2].distinct == 2


@pytest.mark.thorough
def test_mixed_values_under_a_key_are_refused_by_line_or_kept_as_json(place: Place) -> None:
    mixed = lines(
        {"id": 1, "answer": 5},
        {"id": 2, "answer": "five"},
        {"id": 3, "answer": [5]},
        {"id": 4, "answer": None},
    )
    with pytest.raises(errors.InvalidInput) as refused:
        push_and_read(*place, {"m.jsonl": mixed})
    assert 'm.jsonl, line 2, column answer: "five" is text' in str(refused.value)
    assert "answer=json" in str(refused.value)
    both = push_and_read(*place, {"m.jsonl": mixed}, types={"answer": "json"})
    assert both.values["answer"] == ["5", '"five"', "[5]", None]
    both = push_and_read(*place, {"m.jsonl": mixed}, allow_bad_rows=True)
    assert (both.values, both.table.bad_rows) == ({"id": [1, 4], "answer": [5, None]}, 2)


@pytest.mark.thorough
def test_nested_values_have_a_stable_type(place: Place) -> None:
    chat = lines(
        {"messages": [{"role": "user", "content": "hi"}], "meta": {"a": 1}},
        {"messages": [], "meta": {"b": [1.5]}},
        {"messages": [{"role": "bot", "content": "x", "tool": "t"}], "meta": None},
    )
    both = push_and_read(*place, {"chat.jsonl": chat})
    assert both.values["messages"][2] == [{"role": "bot", "content": "x", "tool": "t"}]
    assert both.values["meta"] == [{"a": 1, "b": None}, {"a": None, "b": [1.5]}, None]
    changed = lines({"a": 1}, {"a": 2, "b": {"c": 1}}, {"b": {"c": "x"}})
    with pytest.raises(errors.InvalidInput, match="line 3, column b: In 'c'"):
        push_and_read(*place, {"n.jsonl": changed})
    late = lines(*[{"b": {"c": 1}}] * 12_000, {"b": {"c": 1.5, "d": "x"}})
    both = push_and_read(*place, {"n.jsonl": late})
    assert both.values["b"][-1] == {"c": 1.5, "d": "x"}
    assert both.values["b"][0] == {"c": 1.0, "d": None}


@pytest.mark.thorough
def test_a_key_that_is_twice_in_an_object_is_refused_by_line(place: Place) -> None:
    with pytest.raises(errors.InvalidInput, match="line 1: The key 'a' is in it twice"):
        push_and_read(*place, {"d.jsonl": b'{"a": 1, "a": 2}\n{"a": 3}\n'})
    both = push_and_read(*place, {"d.jsonl": b'{"a": 1, "a": 2}\n{"a": 3}\n'}, allow_bad_rows=True)
    assert both.values == {"a": [3]}


@pytest.mark.thorough
def test_a_key_that_comes_late_is_a_column_with_missing_values(place: Place) -> None:
    rows = [{"id": n} if n < 11_000 else {"id": n, "refund": 1} for n in range(12_000)]
    both = push_and_read(*place, {"late.jsonl": lines(*rows)})
    assert (both.types["refund"], both.table.statistics.columns[1].missing) == ("int64", 11_000)
    assert sum(value or 0 for value in both.values["refund"]) == 1_000


@pytest.mark.thorough
def test_what_json_lines_cannot_hold_exactly_is_refused_by_line(place: Place) -> None:
    bad = [
        (b'{"x": 0.1234567890123456789}', "more digits"),
        (b'{"x": 1e400}', "more digits"),
        (b'{"x": 18446744073709551616}', "64 bits"),
        (b'{"x": true}', "true or false"),
        (b'{"x": "\\ud800"}', "half a character"),
        (b'{"y": ' + b"[" * 60 + b"]" * 60 + b"}", "nested too deeply"),
        (b'{"x": "\xff"}', "not UTF-8"),
        (b'{"x": 1', "not JSON"),
        (b"[1]", "no object"),
    ]
    text = b'{"x": 1}\n' * 3 + b"\n".join(line for line, _ in bad) + b'\n{"x": 2}\n'
    both = push_and_read(*place, {"x.jsonl": text}, allow_bad_rows=True)
    assert (both.values["x"], both.table.bad_rows) == ([1, 1, 1, 2], len(bad))
    alice, project, _folder = place
    problems = alice.datasets.version("d0", project=project).problems
    for line, (_text, reason) in enumerate(bad, start=4):
        assert any(problem.line == line and reason in problem.message for problem in problems), (
            reason
        )


@pytest.mark.thorough
def test_long_values_are_readable(place: Place) -> None:
    record = {"id": 1, "t": "x" * 3_900_000}
    both = push_and_read(*place, {"r.jsonl": lines(record, {"id": 2, "t": "x"})})
    assert both.values["t"] == [record["t"], "x"]
    cell = b"x" * 6_000_000
    both = push_and_read(*place, {"c.csv": b"id,image\n1," + cell + b"\n2,y\n"})
    assert [len(value) for value in both.values["image"]] == [6_000_000, 1]


@pytest.mark.thorough
def test_distinct_values_are_counted_by_all_of_their_text_and_never_exceed_the_rows(
    place: Place,
) -> None:
    before = "You answer questions about insurance policies, politely and briefly. " * 2
    rows = [{"prompt": f"{before}Question {n}?", "label": n % 2} for n in range(1000)]
    both = push_and_read(*place, {"p.jsonl": lines(*rows)})
    prompt = both.table.statistics.columns[0]
    assert (prompt.distinct, prompt.distinct_is_exact) == (1000, True)
    ids = "id\n" + "".join(f"{n}\n" for n in range(12_000))
    both = push_and_read(*place, {"i.csv": ids.encode()})
    ids_column = both.table.statistics.columns[0]
    assert ids_column.distinct is not None
    assert 10_800 < ids_column.distinct <= 12_000
    assert not ids_column.distinct_is_exact
