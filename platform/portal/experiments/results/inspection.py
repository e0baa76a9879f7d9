"""A confined process that parses artifacts: `python -m portal.experiments.results.inspection`.

Its argument is a JSON object: `task`, the `sizes` of the files that follow each other on standard
input, and `options` of the task. It writes a JSON object: `result`, or `refused` with a sentence.
"""

import json
import resource
import sys
from typing import Any

from portal.experiments.results.event_files import read_events
from portal.experiments.results.highlighter import highlighted
from portal.experiments.results.tables import TableRefused, difference_of_tables, page_of_table

MEMORY_BYTES = 1536 * 1024**2
CPU_S = 20


def inspect(task: str, files: list[bytes], options: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a task over the content of some files. Raises TableRefused."""
    if task == "table":
        return page_of_table(files[0], **options)
    if task == "difference":
        return difference_of_tables(files, **options)
    if task == "highlight":
        return highlighted(files[0], **options)
    return read_events(files, **options)


def main() -> None:
    """Do the task of the command line within limits of memory and time."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    order = json.loads(sys.argv[1])
    files = [sys.stdin.buffer.read(int(size)) for size in order["sizes"]]
    try:
        answer: dict[str, Any] = {"result": inspect(order["task"], files, order["options"])}
    except TableRefused as refused:
        answer = {"refused": str(refused)}
    except MemoryError:
        answer = {"refused": "Reading this file takes too much memory."}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
