"""`python -m portal.monitoring.analysis MEMORY_MIB`: executes requests, one JSON line each."""

import resource
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

import portal.core.without_pandas  # noqa: F401  (before the modules that use pyarrow)
from portal.monitoring.analysis import (
    compaction,
    export,
    flatten,
    label_files,
    prediction_lines,
    profiles,
    summaries,
)
from portal.monitoring.cpu_priority import lower_session_priority, lower_thread_priority

_ORDERS: Final[Mapping[str, Callable[..., Any]]] = {
    "digest": flatten.digest,
    "close": flatten.close,
    "summarise": summaries.summarise,
    "windows": summaries.windows,
    "observe": summaries.observe,
    "own_ids": summaries.own_ids,
    "profile_sample": profiles.profile_sample,
    "profile_first": profiles.profile_first,
    "profile_table": profiles.profile_table,
    "export": compaction.export,
    "sent_inputs": export.sent_inputs,
    "erase": compaction.erase,
    "csv_header": prediction_lines.csv_header,
    "table_facts": prediction_lines.table_facts,
    "write_table": prediction_lines.write_table,
    "write_lines": prediction_lines.write_lines,
    "read_labels": label_files.read_labels,
}
_STEP_BACK: Final = 19


def _json(answer: dict[str, Any]) -> bytes:
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def main() -> int:
    """Answer requests until the input ends."""
    limit = int(sys.argv[1]) * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    lower_session_priority(_STEP_BACK)
    lower_thread_priority(_STEP_BACK, always=True)
    for line in sys.stdin.buffer:
        order = orjson.loads(line)
        try:
            answer = _json({"result": _ORDERS[order["verb"]](**order["facts"])})
        except Exception as error:  # noqa: BLE001  (one bad request must not fail the others)
            text = f"{type(error).__name__}: {error}"[:500]
            answer = _json({"fault": text.encode(errors="replace").decode()})
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
