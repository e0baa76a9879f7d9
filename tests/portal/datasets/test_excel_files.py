"""Excel workbooks on the page and in a job."""

import datetime as dt
import io
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from openpyxl.styles import numbers

import slipway
from slipway import errors
from tests.portal.datasets.agreeing import push_and_read
from tests.portal.datasets.workbooks import HEADER, at, by_hand, saved, workbook

Place = tuple[slipway.Client, str, Path]


@pytest.fixture
def place(alice: slipway.Client, project: str, tmp_path: Path) -> Place:
    return alice, project, tmp_path / "data"


@pytest.mark.thorough
def test_types_of_cells_are_kept(place: Place) -> None:
    header = ["zip", "code", "count", "price", "ok", "day", "at", "clock", "mixed", "gap"]
    rows: list[list[Any]] = [
        ["01234", "42", 1, 0.1, True, dt.date(2024, 1, 5), None, dt.time(10, 30), 5, None],
        ["00431", "7", None, 0.25, False, dt.date(1900, 3, 1), None, None, "x", 1],
        [None, "0", 900719925474099, 1e300, None, None, None, dt.time(0, 0, 1), None, 2],
    ]
    rows[0][6] = at(2024, 1, 5, 10, 0, 0, 123000)
    rows[2][6] = at(9999, 12, 31, 23, 59, 59)
    both = push_and_read(*place, {"t.xlsx": workbook({"Data": [header, *rows]})})
    assert both.types == {
        "zip": "string",
        "code": "string",
        "count": "int64",
        "price": "double",
        "ok": "bool",
        "day": "timestamp[us]",
        "at": "timestamp[us]",
        "clock": "string",
        "mixed": "string",
        "gap": "int64",
    }
    values = both.values
    for name in ("zip", "code", "count", "price", "ok", "at", "gap"):
        assert values[name] == [row[header.index(name)] for row in rows], name
    assert values["day"] == [at(2024, 1, 5), at(1900, 3, 1), None]
    assert values["clock"] == ["10:30:00", None, "00:00:01"]
    assert values["mixed"] == ["5", "x", None]
    assert both.table.table_schema is not None
    (note,) = [column.note for column in both.table.table_schema.columns if column.note]
    assert note.startswith("Text, because its cells are of the kinds ")


@pytest.mark.thorough
def test_the_sheet_is_the_only_visible_one_with_values_or_has_to_be_declared(place: Place) -> None:
    one: list[list[Any]] = [["a"], [1]]
    two: list[list[Any]] = [["b"], [2]]
    book = workbook({"Empty": [], "One": one, "Old": two}, hidden=["Old"])
    both = push_and_read(*place, {"t.xlsx": book})
    assert both.values == {"a": [1]}
    assert both.table.table_schema is not None
    assert both.table.table_schema.notes == ["Sheet One of: Empty, One, Old."]
    book = workbook({"One": one, "Two": two})
    with pytest.raises(errors.InvalidInput, match=r"2 of its visible sheets.*One, Two"):
        push_and_read(*place, {"t.xlsx": book})
    assert push_and_read(*place, {"t.xlsx": book}, sheet="Two").values == {"b": [2]}
    with pytest.raises(errors.InvalidInput, match=r"no sheet Three.*One, Two"):
        push_and_read(*place, {"t.xlsx": book}, sheet="Three")


@pytest.mark.thorough
def test_merged_cells_are_refused_and_stated_when_allowed(place: Place) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (["a", "b"], [1, 2], [None, 3]):
        sheet.append(row)
    sheet.merge_cells("A2:A3")
    with pytest.raises(errors.InvalidInput, match=r"Cells are merged: A2:A3"):
        push_and_read(*place, {"t.xlsx": saved(book)})
    both = push_and_read(*place, {"t.xlsx": saved(book)}, allow_bad_rows=True)
    assert (both.values, both.table.bad_rows) == ({"a": [1, None], "b": [2, 3]}, 1)


@pytest.mark.thorough
def test_a_formula_counts_by_its_saved_value_and_is_refused_without_one(place: Place) -> None:
    rows = '<row r="2"><c r="A2"><f>1+1</f><v>2</v></c></row>'
    assert push_and_read(*place, {"t.xlsx": by_hand(HEADER + rows)}).values == {"a": [2]}
    rows += '<row r="3"><c r="A3" t="str"><f>A1</f><v>x</v></c></row>'
    both = push_and_read(*place, {"t.xlsx": by_hand(HEADER + rows)})
    assert both.values == {"a": ["2", "x"]}
    book = workbook({"Data": [["a"], ["=1+1"]]})
    with pytest.raises(errors.InvalidInput, match=r"line 2, column a: The cell A2 is a formula wi"):
        push_and_read(*place, {"t.xlsx": book})


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ('<c r="A2" t="e"><v>#DIV/0!</v></c>', r"The cell A2 holds the error #DIV/0!"),
        ('<c r="A2" t="s"><v>7</v></c>', r"names a text that is not in the workbook"),
        ('<c r="A2"><v>seven</v></c>', r"holds 'seven', which is no number"),
        ('<c r="C2"><v>1</v></c>', r"The cell C2 is in a column without a name"),
        ('<c r="A2" s="1"><v>60</v></c>', r"Excel's day 60 does not exist"),
        pytest.param(
            '<c r="A2" s="1"><v>-1</v></c>',
            r"Excel's day -1 does not exist",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_cells_that_cannot_be_read_are_named(place: Place, cell: str, message: str) -> None:
    styles = '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
    rows = f'<row r="2">{cell}</row><row r="3"><c r="A3"><v>1</v></c></row>'
    book = by_hand(HEADER + rows, styles=styles)
    with pytest.raises(errors.InvalidInput, match=rf"line 2.*{message}"):
        push_and_read(*place, {"t.xlsx": book})
    assert push_and_read(*place, {"t.xlsx": book}, allow_bad_rows=True).values == {"a": [1]}


@pytest.mark.thorough
def test_dates_of_macintosh_and_formats_of_ones_own(place: Place) -> None:
    book = openpyxl.Workbook()
    book.epoch = openpyxl.utils.datetime.CALENDAR_MAC_1904
    sheet = book.active
    sheet.append(["day", "long", "money"])
    sheet.append([at(2024, 2, 29, 6, 0), 1.5, 3])
    sheet["A2"].number_format = '[$-407]d. mmmm yyyy" um "h:mm'
    sheet["B2"].number_format = numbers.FORMAT_DATE_TIMEDELTA
    sheet["C2"].number_format = '#,##0.00 "days";[Red]-#,##0.00'
    both = push_and_read(*place, {"t.xlsx": saved(book)})
    assert both.values == {"day": [at(2024, 2, 29, 6)], "long": ["36:00:00"], "money": [3]}


@pytest.mark.thorough
def test_numbers_have_all_digits_of_the_file(place: Place) -> None:
    whole = ["9007199254740993", "1", "18446744073709551615"]
    rows = "".join(f'<row><c r="A{at}"><v>{v}</v></c></row>' for at, v in enumerate(whole, 2))
    both = push_and_read(*place, {"t.xlsx": by_hand(HEADER + rows)})
    assert both.values == {"a": [int(number) for number in whole]}
    fractions = ["0.30000000000000004", "1.1000000000000001", "1E-3"]
    rows = "".join(f'<row><c r="A{at}"><v>{v}</v></c></row>' for at, v in enumerate(fractions, 2))
    both = push_and_read(*place, {"t.xlsx": by_hand(HEADER + rows)})
    assert both.values == {"a": [float(number) for number in fractions]}


@pytest.mark.thorough
def test_rich_texts_escapes_and_gaps(place: Place) -> None:
    strings = (
        "<si><t>a</t></si><si><r><t>Jo</t></r><r><t>sé</t></r><rPh><t>ho</t></rPh></si>"
        "<si><t>x_x000D_y</t></si>"
    )
    rows = (
        '<row r="3"><c r="B3" t="s"><v>0</v></c></row><row r="5"><c r="B5" t="s"><v>1</v></c></row>'
        '<row r="900"><c r="B900" t="s"><v>2</v></c></row>'
    )
    both = push_and_read(*place, {"t.xlsx": by_hand(rows, strings=strings)})
    assert both.values == {"a": ["José", "x\ry"]}


@pytest.mark.thorough
def test_archives_that_unpack_to_very_much_and_entities_are_refused(place: Place) -> None:
    entities = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    book = by_hand(HEADER + '<row><c t="str"><v>&b;</v></c></row>', before=entities)
    with pytest.raises(errors.InvalidInput, match=r"declares a document type"):
        push_and_read(*place, {"t.xlsx": book})
    sink = io.BytesIO(by_hand(HEADER))
    with (
        zipfile.ZipFile(sink, "a", zipfile.ZIP_DEFLATED) as package,
        package.open("xl/sharedStrings.xml", "w") as part,
    ):
        for _piece in range(70):
            part.write(b" " * 1024**2)
    with pytest.raises(errors.InvalidInput, match=r"unpacks to more than 200 times its size"):
        push_and_read(*place, {"t.xlsx": sink.getvalue()})
    with pytest.raises(errors.InvalidInput, match=r"not an Excel workbook"):
        push_and_read(*place, {"t.xlsx": b"\xd0\xcf\x11\xe0 what a password makes of it"})
    with pytest.raises(errors.InvalidInput, match=r"cannot be read|is not XML"):
        push_and_read(*place, {"t.xlsx": by_hand(HEADER + "<row>")})
