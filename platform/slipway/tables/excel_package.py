"""The parts of an Excel workbook (.xlsx), which is a ZIP archive of XML files.

Archives that unpack to very much and XML with a document type, which could define entities, are
refused.
"""

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any
from xml.parsers import expat

from slipway.schemas.truncation import shorten
from slipway.tables.compression import ALWAYS_ALLOWED_BYTES, MAX_RATIO
from slipway.tables.errors import Unreadable

_CHUNK_BYTES = 256 * 1024
_MAX_SHEETS = 1000
_MAX_STRINGS_BYTES = 1024**3
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)
# Excel's escape of characters that XML cannot contain.
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
# Built-in number formats, which workbooks do not list.
_BUILT_IN = {
    **dict.fromkeys((*range(14, 18), 22, *range(27, 37), *range(50, 59)), "date"),
    **dict.fromkeys((*range(18, 22), 45, 47), "time"),
    46: "duration",
}
_LITERAL = re.compile(
    r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]|am/pm|a/p', re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True)
class Sheet:
    """A worksheet and the file that holds it."""

    name: str
    path: str
    is_hidden: bool


class Package:
    """An open workbook. Raises Unreadable."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except _BROKEN as error:
            raise Unreadable(
                "This is not an Excel workbook (.xlsx), or it has a password: "
                f"{shorten(str(error), 200)}"
            ) from error
        self._names = set(self._zip.namelist())
        self.is_1904 = False
        self.sheets: list[Sheet] = []
        self._read_workbook()

    def parse(self, path: str, handler: "Handler") -> Iterator[None]:
        """Pass the XML of one part to a handler. Yields after each piece of it."""
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse_doctype
        parser.StartElementHandler = handler.start
        parser.EndElementHandler = handler.end
        parser.CharacterDataHandler = handler.text
        try:
            self._require_bounded(path)
            with self._zip.open(path) as part:
                while chunk := part.read(_CHUNK_BYTES):
                    parser.Parse(chunk, False)
                    yield
            parser.Parse(b"", True)
            yield
        except expat.ExpatError as error:
            raise Unreadable(f"{shorten(path, 120)} in the workbook is not XML: {error}") from error
        except _BROKEN as error:
            raise Unreadable(
                f"{shorten(path, 120)} in the workbook cannot be read: {shorten(str(error), 200)}"
            ) from error

    def _require_bounded(self, path: str) -> None:
        info = self._zip.getinfo(path)
        if info.file_size > max(ALWAYS_ALLOWED_BYTES, MAX_RATIO * info.compress_size):
            raise Unreadable(
                f"{shorten(path, 120)} in the workbook unpacks to more than {MAX_RATIO} times "
                "its size, "
                "as decompression bombs do. Save the table as CSV or Parquet."
            )

    def _read(self, path: str, handler: "Handler") -> None:
        for _piece in self.parse(path, handler):
            pass

    def _read_workbook(self) -> None:
        if "xl/workbook.xml" not in self._names:
            raise Unreadable("This is not an Excel workbook: xl/workbook.xml is not in it.")
        relations: dict[str, str] = {}
        sheets: list[tuple[str, str, bool]] = []

        def on_relation(name: str, attributes: dict[str, str]) -> None:
            if name == "Relationship" and attributes.get("Type", "").endswith("/worksheet"):
                relations[attributes.get("Id", "")] = attributes.get("Target", "")

        def on_workbook(name: str, attributes: dict[str, str]) -> None:
            if name == "workbookPr":
                self.is_1904 = attributes.get("date1904", "0") in ("1", "true", "on")
            elif name == "sheet":
                is_hidden = attributes.get("state", "visible") != "visible"
                sheets.append((attributes.get("name", ""), attributes.get("id", ""), is_hidden))
                if len(sheets) > _MAX_SHEETS:
                    raise Unreadable(f"It has more than {_MAX_SHEETS:,} sheets.")

        self._read("xl/_rels/workbook.xml.rels", Handler(on_relation))
        self._read("xl/workbook.xml", Handler(on_workbook))
        for name, relation, is_hidden in sheets:
            if relation in relations:
                target = relations[relation]
                path = target[1:] if target.startswith("/") else f"xl/{target}"
                self.sheets.append(Sheet(name, path, is_hidden))

    def strings(self) -> list[str]:
        """Return the texts that cells name by their place."""
        path = "xl/sharedStrings.xml"
        if path not in self._names:
            return []
        if self._zip.getinfo(path).file_size > _MAX_STRINGS_BYTES:
            raise Unreadable("Its texts are larger than 1 GiB. Save the table as CSV or Parquet.")
        handler = _Strings()
        self._read(path, handler)
        return handler.texts

    def formats(self) -> list[str]:
        """Return what each style makes of a number: `number`, `date`, `time` or `duration`."""
        path = "xl/styles.xml"
        if path not in self._names:
            return []
        custom: dict[int, str] = {}
        styles: list[int] = []
        state = {"is_cell": False}

        def on_start(name: str, attributes: dict[str, str]) -> None:
            if name == "numFmt":
                custom[int(attributes["numFmtId"])] = kind_of(attributes.get("formatCode", ""))
            elif name in ("cellXfs", "cellStyleXfs", "dxfs"):
                state["is_cell"] = name == "cellXfs"
            elif name == "xf" and state["is_cell"]:
                styles.append(int(attributes.get("numFmtId", "0")))

        self._read(path, Handler(on_start))
        return [custom.get(number) or _BUILT_IN.get(number, "number") for number in styles]


class Handler:
    """Takes the elements of an XML file, named without their namespaces."""

    def __init__(self, on_start: Callable[[str, dict[str, str]], None] | None = None) -> None:
        self._on_start = on_start

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Handle the start of an element."""
        if self._on_start is not None:
            plain = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
            self._on_start(name.rpartition(" ")[2], plain)

    def end(self, name: str) -> None:
        """Handle the end of an element."""

    def text(self, text: str) -> None:
        """Handle text."""


class _Strings(Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._parts: list[str] = []
        self._is_text = self._is_phonetic = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        if local == "si":
            self._parts = []
        elif local == "rPh":
            self._is_phonetic = True
        elif local == "t":
            self._is_text = not self._is_phonetic

    def end(self, name: str) -> None:
        local = name.rpartition(" ")[2]
        if local == "si":
            self.texts.append(unescaped("".join(self._parts)))
        elif local == "rPh":
            self._is_phonetic = False
        elif local == "t":
            self._is_text = False

    def text(self, text: str) -> None:
        if self._is_text:
            self._parts.append(text)


def unescaped(text: str) -> str:
    """Return a text of a workbook without the escapes of Excel, such as `_x000D_`."""
    if "_x" not in text:
        return text
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def kind_of(code: str) -> str:
    """Return what a format such as `yyyy-mm-dd` makes of a number."""
    plain = _LITERAL.sub("", code.partition(";")[0]).lower()
    if "[" in plain:
        return "duration"
    if "y" in plain or "d" in plain:
        return "date"
    if "h" in plain or "s" in plain:
        return "time"
    return "date" if "m" in plain else "number"


def _refuse_doctype(*_declaration: Any) -> None:
    raise Unreadable("An XML file in the workbook declares a document type, which is not allowed.")
