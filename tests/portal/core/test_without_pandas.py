"""Processes that read tables do not load pandas, a third of the time that they take to start."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import portal

_CSV = b"a,b\n1,x\n"
_TABLE: list[dict[str, Any]] = [
    {"settings": {}, "schema": None, "partitions": {}},
    {"path": "a.csv", "format": "csv", "size": len(_CSV)},
]
_LINES = b"".join(json.dumps(line).encode() + b"\n" for line in _TABLE) + _CSV


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "arguments", "sent"),
    [
        ("portal.datasets.table_inspection", ("10", str(1024**4)), _LINES),
        ("portal.monitoring.analysis", ("3072",), b""),
    ],
)
def test_a_process_that_reads_tables_does_not_load_pandas(
    module: str, arguments: tuple[str, ...], sent: bytes
) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-P", "-m", module, *arguments],
        input=sent,
        env={"PYTHONPATH": str(Path(portal.__path__[0]).parent)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = [line.rpartition(b"|")[2].strip() for line in done.stderr.splitlines()]
    assert b"pyarrow.lib" in loaded
    assert not [name for name in loaded if name.startswith(b"pandas.")]
