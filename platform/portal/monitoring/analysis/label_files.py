"""Parses label files, isolated because their content is untrusted."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from slipway.label_files import parse_labels

MOST_LABELS: Final = 200_000


def read_labels(*, path: str, name: str) -> dict[str, Any]:
    """Return the labels of a file with their positions, or the reason it is refused."""
    file = parse_labels(Path(path), name=name)
    if len(file.rows) > MOST_LABELS:
        return {
            "rows": [],
            "refusal": (
                f"{name} has {len(file.rows):,} labels; at most {MOST_LABELS:,} can be uploaded "
                "here."
            ),
            "next_step": "Split the file, or send it with Monitoring.label_file of the SDK.",
        }
    return asdict(file)
