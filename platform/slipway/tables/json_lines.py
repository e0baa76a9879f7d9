"""Files of JSON lines as objects, each with its line."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from slipway.schemas.tables import MAX_ROW_BYTES, ReadSettings
from slipway.tables.errors import Unreadable
from slipway.tables.json_values import Misfit, invalid_key_reason, parse_float, parse_object
from slipway.tables.text_files import open_text, require_no_nul

BATCH_ROWS = 10_000
_BATCH_BYTES = 8 * 1024**2
BadRow = Callable[[int, str | None, str], None]


@dataclass
class ObjectBatch:
    """Some objects and their lines."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


class JsonFile:
    """One file of JSON lines. `on_bad_row` gets the lines that are no object."""

    def __init__(self, source: IO[bytes], *, settings: ReadSettings, on_bad_row: BadRow) -> None:
        self._on_bad_row = on_bad_row
        self.encoding, self._chunks = open_text(source, settings.encoding)
        self._decoder = json.JSONDecoder(parse_float=parse_float, object_pairs_hook=parse_object)

    def batches(self) -> Iterator[ObjectBatch]:
        """Yield the objects, or raise Unreadable where the rest cannot be read."""
        batch, size = ObjectBatch(), 0
        for number, line in self._lines():
            row = self._row(number, line)
            if row is None:
                continue
            batch.rows.append(row)
            batch.lines.append(number)
            size += len(line)
            if len(batch.rows) >= BATCH_ROWS or size >= _BATCH_BYTES:
                yield batch
                batch, size = ObjectBatch(), 0
        if batch.rows:
            yield batch

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        pending, number = b"", 0
        for chunk in self._chunks:
            require_no_nul(chunk, number + 1 + pending.count(b"\n"))
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                number += 1
                yield number, line
            if len(pending) > MAX_ROW_BYTES:
                raise Unreadable(
                    f"The line is longer than {MAX_ROW_BYTES // 1024**2} MiB.", number + 1
                )
        if pending:
            yield number + 1, pending

    def _row(self, number: int, line: bytes) -> dict[str, Any] | None:
        line = line.strip()
        if not line:
            return None
        try:
            decoder = self._decoder.decode(line.decode())
        except UnicodeDecodeError:
            self._on_bad_row(number, None, "The line is not UTF-8. Declare its encoding.")
        except Misfit as error:
            self._on_bad_row(number, None, str(error))
        except json.JSONDecodeError as error:
            self._on_bad_row(
                number, None, f"This is not JSON: {error.msg} at character {error.colno}."
            )
        except (RecursionError, ValueError):
            self._on_bad_row(number, None, "This is nested too deeply, or no JSON.")
        else:
            if isinstance(decoder, dict):
                fault = invalid_key_reason(decoder) if b"\\u" in line else None
                if fault is None:
                    return decoder
                self._on_bad_row(number, None, fault)
                return None
            self._on_bad_row(number, None, "This is no object with named values.")
        return None
