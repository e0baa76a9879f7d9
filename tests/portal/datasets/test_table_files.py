"""Files of tables: headers, separators, encodings and parts, on the page and in a job."""

import json
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import slipway
from slipway import errors
from slipway.datasets import dataset
from tests.portal.datasets.agreeing import push_and_read

Place = tuple[slipway.Client, str, Path]


@pytest.fixture
def place(alice: slipway.Client, project: str, tmp_path: Path) -> Place:
    return alice, project, tmp_path / "data"


def packed(table: pa.Table) -> bytes:
    sink = BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


@pytest.mark.thorough
def test_spaces_after_commas_belong_to_no_name_and_no_value(place: Place) -> None:
    text = b'name, age, joined\nAnn, 31, 2024-01-05\nBob, NA, 2024-02-06\n"C, D", 5, 2024-03-07\n'
    both = push_and_read(*place, {"people.csv": text})
    assert both.types == {"name": "string", "age": "int64", "joined": "timestamp[us]"}
    assert both.values["name"] == ["Ann", "Bob", "C, D"]
    assert both.values["age"] == [31, None, 5]
    both = push_and_read(*place, {"ids.csv": b"id,age\n1,3\n2, NA \n3,4\n"})
    assert (both.types["age"], both.values["age"]) == ("int64", [3, None, 4])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("latin-1", "latin-1"),
        ("utf-16", None),
        pytest.param("utf-16-be", "utf-16-be", marks=pytest.mark.slow),
        pytest.param("utf-8-sig", None, marks=pytest.mark.slow),
    ],
)
def test_an_encoding_is_read_when_it_is_declared_or_marked(
    place: Place, encoding: str, declared: str | None
) -> None:
    text = "name,city\nJosé,Köln\nAnn,Graz\n"
    both = push_and_read(*place, {"p.csv": text.encode(encoding)}, encoding=declared)
    assert both.values == {"name": ["José", "Ann"], "city": ["Köln", "Graz"]}
    assert both.table.table_schema is not None
    assert both.table.table_schema.encoding == (declared or encoding.removesuffix("-sig"))
    line = json.dumps({"name": "José"}, ensure_ascii=False)
    both = push_and_read(*place, {"p.jsonl": line.encode(encoding)}, encoding=declared)
    assert both.values == {"name": ["José"]}


@pytest.mark.thorough
def test_an_encoding_that_is_not_declared_is_refused_by_line_and_never_replaced(
    place: Place,
) -> None:
    text = "name,city\nJosé,Köln\nAnn,Graz\n".encode("latin-1")
    with pytest.raises(errors.InvalidInput) as refused:
        push_and_read(*place, {"p.csv": text})
    assert "p.csv, line 2, column name: The value is not UTF-8" in str(refused.value)
    assert "latin-1" in str(refused.value)
    both = push_and_read(*place, {"p.csv": text}, allow_bad_rows=True)
    assert (both.values, both.table.bad_rows) == ({"name": ["Ann"], "city": ["Graz"]}, 1)
    with pytest.raises(errors.InvalidInput, match=r"NUL character.*utf-16"):
        push_and_read(*place, {"p.csv": "a,b\n1,2\n".encode("utf-16-le")})


@pytest.mark.thorough
def test_five_thousand_columns_are_examined(place: Place) -> None:
    header = ",".join(f"g{n}" for n in range(5000))
    rows = [",".join(str((n * m) % 7) for n in range(5000)) for m in range(1, 20)]
    both = push_and_read(*place, {"wide.csv": "\n".join([header, *rows, ""]).encode()})
    assert len(both.table.statistics.columns) == 5000
    assert {column.type for column in both.table.statistics.columns} == {"int64"}
    assert both.table.note == ""


@pytest.mark.thorough
def test_names_that_are_twice_are_refused_with_their_places(place: Place) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(errors.InvalidInput, match=r"two columns named a, in the places 1, 2"):
        push_and_read(*place, {"d.parquet": packed(twice)})
    with pytest.raises(errors.InvalidInput, match=r"column x twice, in the places 1, 3"):
        push_and_read(*place, {"d.csv": b"x,y, x\n1,2,3\n"})


@pytest.mark.thorough
def test_a_column_without_a_name_gets_one_and_the_page_says_so(place: Place) -> None:
    both = push_and_read(*place, {"f.csv": b',a\n0,"x"\n1,"y"\n'})
    assert both.values == {"column_1": [0, 1], "a": ["x", "y"]}
    assert both.table.table_schema is not None
    assert both.table.table_schema.notes == ["Column 1 has no name; it is called column_1."]


_FORMS = [
    b"a,b\n1,x\n2,y\n",
    b"a,b,\n1,x,\n2,y,\n",
    b"a,b\n1,x,\n2,y,\n",
    b'"a","b"\n"1","x"\n"2","y"\n',
    b"a,b\r\n1,x\r\n2,y",
    b"a,b\r1,x\r2,y\r",
    b"a;b\n1;x\n2;y\n",
    b"a\tb\n1\tx\n2\ty\n",
    b"a|b\n1|x\n2|y\n",
    b"\n\na,b\n1,x\n\n2,y\n",
]


@pytest.mark.thorough
def test_forms_of_the_same_table_are_the_same_table(
    alice: slipway.Client, project: str, tmp_path: Path
) -> None:
    names = [f"t{'x' * at}.csv" for at in range(len(_FORMS))]
    for name, text in zip(names, _FORMS, strict=True):
        (tmp_path / name).write_bytes(text)
    alice.datasets.push("forms", *(tmp_path / name for name in names), project=project)
    loaded = dataset("forms", project=project, client=alice)
    tables = {table.name: table for table in loaded.tables}
    for name, text in zip(names, _FORMS, strict=True):
        assert loaded.arrow(name).to_pydict() == {"a": [1, 2], "b": ["x", "y"]}, text
        assert [column.type for column in tables[name].statistics.columns] == ["int64", "string"]


@pytest.mark.thorough
def test_quotes_and_line_breaks_in_values_stay(place: Place) -> None:
    text = b'"a, b","c""d"\n"x\ny","1 ""2"" 3"\n" z ",""\n5" pipe,"q"\n"","""q"""\n'
    both = push_and_read(*place, {"q.csv": text})
    assert both.values == {
        "a, b": ["x\ny", " z ", '5" pipe', None],
        'c"d': ['1 "2" 3', None, "q", '"q"'],
    }


@pytest.mark.thorough
def test_a_separator_can_be_declared(place: Place) -> None:
    both = push_and_read(*place, {"s.csv": b"a,x;b\n1,5;2\n"}, separator=";")
    assert both.values == {"a,x": ["1,5"], "b": [2]}


@pytest.mark.thorough
def test_parts_of_one_table_widen_without_loss(place: Place) -> None:
    both = push_and_read(
        *place,
        {
            "p-1.parquet": packed(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})),
            "p-2.parquet": packed(pa.table({"b": ["y"], "a": pa.array([2**40], pa.int64())})),
        },
    )
    assert (both.types["a"], both.values) == ("int64", {"a": [1, 2**40], "b": ["x", "y"]})
    both = push_and_read(
        *place,
        {
            "p-1.parquet": packed(pa.table({"a": [1], "b": ["x"]})),
            "p-2.parquet": packed(pa.table({"b": ["y"], "a": [0.5]})),
        },
    )
    assert (both.types["a"], both.values["a"]) == ("double", [1.0, 0.5])
    with pytest.raises(
        errors.InvalidInput, match=r"p-1.parquet, column a: Row 1: 9007199254740993"
    ):
        push_and_read(
            *place,
            {
                "p-1.parquet": packed(pa.table({"a": [2**53 + 1], "b": ["x"]})),
                "p-2.parquet": packed(pa.table({"b": ["y"], "a": [0.5]})),
            },
        )


@pytest.mark.thorough
def test_parts_of_one_table_need_the_same_columns(place: Place) -> None:
    with pytest.raises(errors.InvalidInput, match=r"part-2.csv.*it has no b; only it has c"):
        push_and_read(*place, {"part-1.csv": b"a,b\n1,2\n", "part-2.csv": b"a,c\n1,2\n"})


@pytest.mark.thorough
def test_parts_in_another_order_of_columns_are_one_table(place: Place) -> None:
    both = push_and_read(*place, {"part-1.csv": b"a,b\n1,x\n", "part-2.csv": b'"b","a"\ny,2.5\n'})
    assert both.values == {"a": [1.0, 2.5], "b": ["x", "y"]}


@pytest.mark.thorough
def test_bad_rows_that_are_accepted_are_left_out_on_both_sides_and_columns_stay(
    place: Place,
) -> None:
    text = b"x,y\n" + b"1,2\n" * 20_000 + b"one,2\n3\n4,5\n"
    both = push_and_read(*place, {"b.csv": text}, allow_bad_rows=True)
    assert both.types == {"x": "int64", "y": "int64"}
    assert (len(both.rows), both.table.bad_rows, both.rows[-1]) == (20_001, 2, {"x": 4, "y": 5})


@pytest.mark.thorough
def test_a_declared_column_that_is_nowhere_is_refused(place: Place) -> None:
    with pytest.raises(
        errors.InvalidInput,
        match=r"column zp: A type is declared for this column, but no table has it.",
    ):
        push_and_read(*place, {"b.csv": b"zip\n1\n"}, types={"zp": "string"})


@pytest.mark.thorough
def test_an_unknown_setting_is_refused(place: Place) -> None:
    for options in (
        {"types": {"a": "varchar"}},
        {"types": {"a": "decimal(50, 2)"}},
        {"encoding": "utf-7"},
        {"separator": "::"},
    ):
        with pytest.raises(errors.InvalidInput):
            push_and_read(*place, {"b.csv": b"a\n1\n"}, **options)


@pytest.mark.thorough
def test_the_same_files_with_other_settings_are_a_new_version(
    alice: slipway.Client, project: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("zip\n01234\n")
    first = alice.datasets.push("zips", tmp_path / "a.csv", project=project)
    again = alice.datasets.push("zips", tmp_path / "a.csv", project=project)
    other = alice.datasets.push("zips", tmp_path / "a.csv", project=project, types={"zip": "int64"})
    assert (first.number, again.number, other.number) == (1, 1, 2)
    assert other.settings.types == {"zip": "int64"}
