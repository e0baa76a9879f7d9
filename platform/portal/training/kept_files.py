"""Files that jobs wrote: what they are by their paths, and the state per task. No I/O."""

import re
from collections.abc import Sequence

from slipway.schemas.kept_files import FilesReport, JobFiles, KeptFile, LeftOutFile

_KINDS = (
    ("TensorBoard events", re.compile(r"(^|/)events\.out\.tfevents\.")),
    ("W&B offline run", re.compile(r"(^|/)wandb/(offline-)?run-[^/]+/")),
    ("Lightning checkpoint", re.compile(r"\.ckpt$")),
    ("Lightning logs", re.compile(r"(^|/)lightning_logs/version_\d+/")),
    ("Hugging Face checkpoint", re.compile(r"(^|/)checkpoint-\d+/")),
    (
        "Hydra output",
        re.compile(r"(^|/)\.hydra/|(^|/)(outputs|multirun)/\d{4}-\d\d-\d\d/\d\d-\d\d"),
    ),
    ("Model weights", re.compile(r"\.(safetensors|pt|pth|onnx|keras|joblib|pkl|ubj)$")),
)


def kind_of_file(path: str) -> str:
    """Return the name of what wrote such a file, or "" if its path does not say."""
    return next((name for name, pattern in _KINDS if pattern.search(path)), "")


def job_files(report: FilesReport, attempt: int) -> JobFiles:
    """Return a report as people read it."""
    return JobFiles(
        attempt=attempt,
        rank=report.rank,
        prefix=report.prefix,
        kept=[
            KeptFile(path=item.path, size_bytes=item.size_bytes, kind=kind_of_file(item.path))
            for item in report.kept
        ],
        left_out=[
            LeftOutFile(path=item.path, size_bytes=item.size_bytes, reason=item.reason)
            for item in report.left_out
        ],
        kept_count=report.kept_count,
        kept_bytes=report.kept_bytes,
        left_out_count=report.left_out_count,
        left_out_bytes=report.left_out_bytes,
        error=report.error,
    )


def files_line(report: FilesReport) -> str:
    """Return the line of the job's events."""
    parts = []
    if report.kept_count:
        kept = _count(report.kept_count)
        parts.append(f"Kept {kept} ({_size(report.kept_bytes)}) as artifacts of the run")
    if report.left_out_count:
        parts.append(f"{_count(report.left_out_count)} ({_size(report.left_out_bytes)}) left out")
    if report.error:
        parts.append(f"files were not kept: {report.error}")
    return f"{'; '.join(parts)}." if parts else ""


def rule_text(patterns: Sequence[str], limit_bytes: int) -> str:
    """Return the rule of a job as a sentence."""
    if not patterns or not limit_bytes:
        return "Nothing that the job writes is kept."
    which = "All files" if "*" in patterns else f"Files like {', '.join(patterns)}"
    return (
        f"{which} that the job writes in its working folder, up to {_size(limit_bytes)} for each "
        "node, are kept as artifacts of its run."
    )


def _count(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _size(size: int) -> str:
    for unit, power in (("GB", 3), ("MB", 2), ("kB", 1)):
        if size >= 1000**power:
            return f"{size / 1000**power:.1f} {unit}".replace(".0 ", " ")
    return f"{size} bytes"
