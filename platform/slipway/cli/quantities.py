"""Parsing and formatting of CPUs, memory, money and parameters."""

import re
from collections.abc import Sequence
from decimal import Decimal

from slipway.cli.exits import UsageMistake
from slipway.schemas.durations import minutes_of
from slipway.schemas.money import parse_dollars

_MEMORY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) *(?P<unit>[kmgt]?)i?b?")
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) *(?P<unit>[kmgt]?)(?P<binary>i?)b?")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_CPUS = re.compile(r"[0-9]+(?:\.[0-9]{1,3})?")


def parse_memory(text: str) -> int:
    """Parse 8GiB, 8G (the same) or 512MiB into bytes. Raises UsageMistake."""
    match = _MEMORY.fullmatch(text.strip().lower())
    if match is None:
        raise _mistake("--memory", text, "Write it like 8GiB or 512MiB.")
    return int(Decimal(match["number"]) * 1024 ** _POWERS[match["unit"]])


def parse_size(text: str | None, *, option: str) -> int | None:
    """Parse 2GB (decimal), 2GiB (binary) or a number of bytes. Raises UsageMistake."""
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise _mistake(option, text, "Write it like 2GB, 500MB or 1GiB.")
    base = 1024 if match["binary"] else 1000
    return int(Decimal(match["number"]) * base ** _POWERS[match["unit"]])


def parse_cpus(text: str) -> int:
    """Parse 2 or 0.5 into thousandths of a CPU. Raises UsageMistake."""
    if not _CPUS.fullmatch(text.strip()):
        raise _mistake("--cpus", text, "Write it like 2 or 0.5.")
    return int(Decimal(text.strip()) * 1000)


def parse_price(text: str, *, option: str) -> int:
    """Parse 0.04 dollars an hour into nano-USD. Raises UsageMistake."""
    try:
        price = parse_dollars(text)
    except ValueError:
        price = -1
    if price < 0:
        raise _mistake(option, text, "Write dollars an hour like 0.04.")
    return price


def parse_pairs(texts: Sequence[str], *, option: str) -> dict[str, str]:
    """Parse repeated NAME=VALUE options. Raises UsageMistake."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise _mistake(option, text, f"Write {option} NAME=VALUE, for example {option} lr=0.1.")
        pairs[name.strip()] = value
    return pairs


def parse_minutes(text: str | None, *, option: str) -> int | None:
    """Parse 15m, 1h or a number of minutes. Raises UsageMistake."""
    if text is None:
        return None
    minutes = minutes_of(text)
    if minutes is None:
        raise _mistake(option, text, "Write it like 15m or 1h.")
    return minutes


def memory_text(size_bytes: int) -> str:
    """Format memory: 8 GiB, 1.5 GiB, 512 MiB."""
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2)):
        if size_bytes >= size:
            return f"{round(size_bytes / size, 1):g} {unit}"
    return f"{size_bytes} bytes"


def cpus_text(cpu_millis: int) -> str:
    """Format CPUs: 2, 0.5."""
    return f"{cpu_millis / 1000:g}"


def _mistake(option: str, text: str, next_step: str) -> UsageMistake:
    return UsageMistake(
        f"{option} {text!r} is not valid.", field=option.lstrip("-"), next_step=next_step
    )
