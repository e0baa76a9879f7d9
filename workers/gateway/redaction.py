"""Columns that are dropped or hashed before a prediction is written to Parquet.

The rules are in the snapshot on the gateway's disk. If an endpoint has rules and the columns of a
body cannot be distinguished (a list without names, bytes), the body is not stored at all: it might
contain values to hide.
"""

import csv
import hashlib
import hmac
import io
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

log = logging.getLogger(__name__)
DROP: Final = "drop"
_ELEMENT: Final = re.compile(r"\A(?:x|prediction)\[(\d+)\]\Z")
_HIDDEN: Final = b'{"hidden":true}'


class _UnresolvedColumns(Exception):
    """The columns to hide cannot be identified in a body."""


@dataclass(frozen=True)
class Rules:
    """Redaction rules of one endpoint: columns with their method, and the key for hashes."""

    columns: Mapping[str, str]
    key: bytes
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def hide(
        self, revision: str, body: bytes, head: int, *, is_input: bool, is_failed: bool = False
    ) -> tuple[bytes, int]:
        """Return a redacted body and the length of its JSON before tensors.

        The body of a failed request is stored only if it contains each column to hide: a model may
        have refused it because a column had a wrong name.
        """
        names = self.names.get(revision, ()) if is_input else ()
        if is_failed and not all(
            _ELEMENT.match(name) or name.encode() in body or (names and name not in names)
            for name in self.columns
        ):
            return _HIDDEN, 0
        return self._hidden(body, head, names), 0

    def _hidden(self, body: bytes, head: int, names: Sequence[str]) -> bytes:
        if head:
            return _HIDDEN  # tensors as bytes
        try:
            try:
                document = orjson.loads(body)
            except orjson.JSONDecodeError:
                return self._csv(body)
            if not isinstance(document, dict):
                return _HIDDEN
            return orjson.dumps(self._object(document, names))
        except (_UnresolvedColumns, RecursionError, orjson.JSONEncodeError):
            return _HIDDEN

    def _object(self, result: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
        split = result.get("dataframe_split")
        if isinstance(split, dict):
            columns = split.get("columns") or names
            result["dataframe_split"] = split | {
                "data": self._rows(split.get("data"), [str(name) for name in columns])
            }
        for key in ("dataframe_records", "instances", "inputs", "predictions", "outputs"):
            if key in result:
                result[key] = self._values(result[key], names)
        return result

    def _values(self, value: Any, names: Sequence[str]) -> Any:
        if isinstance(value, dict):
            return {
                name: cells if self._action_of(name) is None else self._cells(name, cells)
                for name, cells in value.items()
            }
        if not isinstance(value, list):
            return value
        if value and all(isinstance(item, dict) for item in value):
            if all("datatype" in item for item in value):
                return [self._tensor(item) for item in value]
            return [self._record(item) for item in value]
        return self._rows(value, names)

    def _tensor(self, tensor: dict[str, Any]) -> dict[str, Any]:
        name = str(tensor.get("name"))
        if self._action_of(name) is not None:
            return tensor | {"data": self._cells(name, tensor.get("data"))}
        if any(_ELEMENT.match(column) for column in self.columns):
            raise _UnresolvedColumns
        return tensor

    def _record(self, row: dict[str, Any]) -> dict[str, Any]:
        return {
            name: cell if self._action_of(name) is None else self._cell(name, cell)
            for name, cell in row.items()
            if self._action_of(name) != DROP
        }

    def _rows(self, rows: Any, names: Sequence[str]) -> Any:
        if not isinstance(rows, list):
            raise _UnresolvedColumns
        return [self._row(row, names) for row in rows]

    def _row(self, row: Any, names: Sequence[str]) -> Any:
        if not isinstance(row, list):
            if len(names) == 1 and self._action_of(names[0]) is not None:
                return self._cell(names[0], row)
            return row
        if any(isinstance(cell, list | dict) for cell in row):
            raise _UnresolvedColumns
        if names and len(names) == len(row):
            return [
                cell if self._action_of(name) is None else self._cell(name, cell)
                for name, cell in zip(names, row, strict=True)
            ]
        result = list(row)
        for name in self.columns:
            match = _ELEMENT.match(name)
            if match is None:
                raise _UnresolvedColumns
            if int(match[1]) < len(result):
                result[int(match[1])] = self._cell(name, result[int(match[1])])
        return result

    def _csv(self, body: bytes) -> bytes:
        try:
            lines = list(csv.reader(io.StringIO(body.decode())))
        except (UnicodeDecodeError, csv.Error):
            return _HIDDEN
        if not lines:
            return _HIDDEN
        written = io.StringIO()
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(lines[0])
        for line in lines[1:]:
            if len(line) != len(lines[0]):
                return _HIDDEN
            row = zip(lines[0], line, strict=True)
            writer.writerow(
                "" if self._action_of(name) == DROP else self._cell(name, cell)
                for name, cell in row
            )
        return written.getvalue().encode()

    def _action_of(self, name: str) -> str | None:
        return self.columns.get(name)

    def _cells(self, name: str, cells: Any) -> Any:
        if isinstance(cells, list):
            return [self._cells(name, cell) for cell in cells]
        return self._cell(name, cells)

    def _cell(self, name: str, cell: Any) -> Any:
        how = self._action_of(name)
        if how is None or cell is None:
            return cell
        if how == DROP:
            return None
        dumps = orjson.dumps(cell)
        return "hmac:" + hmac.new(self.key, dumps, hashlib.sha256).hexdigest()[:24]


class Redactor:
    """The rules of all endpoints, reloaded when the snapshot on the disk has changed."""

    def __init__(self, snapshot: Path) -> None:
        self._path = snapshot
        self._stamp: tuple[int, int] | None = None
        self._rules: dict[str, Rules] = {}

    def rules_of(self, endpoint: str) -> Rules | None:
        """Return the redaction rules of an endpoint, or None without any."""
        return self._rules.get(endpoint)

    def refresh(self) -> None:
        """Read the rules. Raise OSError if they cannot be read, so that nothing is shipped."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return  # no snapshot was ever stored here
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return
        try:
            document = orjson.loads(self._path.read_bytes())
            rules_by_id = {
                endpoint["id"]: _rules(endpoint)
                for endpoint in document["endpoints"]
                if endpoint.get("hidden")
            }
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise OSError("the snapshot cannot be read") from error
        # Predictions of a deleted endpoint may still wait, so its rules are retained.
        gone = {key: rules for key, rules in self._rules.items() if key not in _ids(document)}
        self._rules, self._stamp = gone | rules_by_id, stamp


def _ids(values: Mapping[str, Any]) -> set[str]:
    return {endpoint["id"] for endpoint in values["endpoints"]}


def _rules(endpoint: Mapping[str, Any]) -> Rules:
    names: dict[str, Sequence[str]] = {}
    for revision in endpoint.get("revisions", []):
        signature = revision.get("signature") or {}
        if signature.get("kind") == "columns":
            names[revision["id"]] = [item["name"] for item in signature.get("inputs", [])]
    return Rules(dict(endpoint["hidden"]), str(endpoint.get("hiding_key", "")).encode(), names)
