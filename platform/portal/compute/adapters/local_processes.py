"""Processes of this machine that outlive the process that started them."""

from pathlib import Path


def start_ticks(pid: int) -> int:
    """Return when a process started, in ticks since the machine did. 0 for one that has ended.

    With its number it names a process for as long as the machine runs.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
