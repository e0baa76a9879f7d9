"""Excel workbooks: as openpyxl writes them, and by hand where it would not."""

import datetime as dt
import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import openpyxl

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def workbook(sheets: Mapping[str, Sequence[Sequence[Any]]], *, hidden: Sequence[str] = ()) -> bytes:
    """Return a workbook of sheets with rows of Python's values."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
        if name in hidden:
            sheet.sheet_state = "hidden"
    return saved(book)


def saved(book: openpyxl.Workbook) -> bytes:
    """Return the bytes of a workbook."""
    sink = io.BytesIO()
    book.save(sink)
    return sink.getvalue()


def by_hand(
    rows: str,
    *,
    after: str = "",
    before: str = "",
    properties: str = "",
    styles: str = "",
    strings: str = "",
) -> bytes:
    """Return a workbook of one sheet with the XML of its rows."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}">{properties}'
            '<sheets><sheet name="Data" sheetId="1" r:id="rId1"/></sheets></workbook>',
        )
        package.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{_PACKAGE}"><Relationship Id="rId1" '
            f'Type="{_RELATIONS}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        )
        if styles:
            package.writestr("xl/styles.xml", f'<styleSheet xmlns="{_MAIN}">{styles}</styleSheet>')
        if strings:
            package.writestr("xl/sharedStrings.xml", f'<sst xmlns="{_MAIN}">{strings}</sst>')
        package.writestr(
            "xl/worksheets/sheet1.xml",
            f'{before}<worksheet xmlns="{_MAIN}"><sheetData>{rows}</sheetData>{after}</worksheet>',
        )
    return sink.getvalue()


HEADER = '<row r="1"><c r="A1" t="inlineStr"><is><t>a</t></is></c></row>'


def at(*parts: int) -> dt.datetime:
    """Return a time without a zone, as tables have them."""
    return dt.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001
