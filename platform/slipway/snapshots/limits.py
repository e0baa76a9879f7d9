"""Size limits of snapshots, and their error messages: what is large, and how to ignore it."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from slipway.errors import InvalidInput, TooLarge
from slipway.sanitize import visible
from slipway.schemas.names import path_error
from slipway.schemas.problem import FieldError

DEFAULT_LIMIT_BYTES = 200 * 1000**2
HARD_LIMIT_BYTES = 500 * 1000**2  # a server accepts 500 MiB including the archive's headers
MAX_FILES = 50_000
_MAX_DEPTH = 32
_NAMED = 5
_IGNORE = "Name what the job does not need in .gitignore or .slipwayignore"


def size_text(size_bytes: int) -> str:
    """Return a size as people read it: 812 bytes, 3.4 kB, 1.2 GB."""
    size = float(size_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"


def check_size(sizes: Mapping[str, int], *, limit_bytes: int) -> None:
    """Raise TooLarge, naming the largest files, when they are more than `limit_bytes` together."""
    total = sum(sizes.values())
    limit = min(limit_bytes, HARD_LIMIT_BYTES)
    if total <= limit:
        return
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:_NAMED]
    example = visible(largest[0][0])
    folder = _heaviest_folder(sizes, total)
    more = (
        "no snapshot may be larger; put data into a dataset or a bucket instead."
        if total > HARD_LIMIT_BYTES
        else f"or allow more with --max-mb (limit_bytes), up to {size_text(HARD_LIMIT_BYTES)}."
    )
    raise TooLarge(
        f"The code is {size_text(total)} in {len(sizes):,} files, and {size_text(limit)} may "
        f"travel{f'; the folder {visible(folder)} holds most of it' if folder else ''}. "
        "Nothing was sent. The largest files:",
        code="snapshot_too_large",
        field="folder",
        errors=[FieldError(field=visible(path), message=size_text(size)) for path, size in largest],
        next_step=f"{_IGNORE}, for example: echo '{example}' >> .slipwayignore; {more}",
    )


def too_many(folders: Counter[str]) -> TooLarge:
    """Return the refusal of a folder that holds more than MAX_FILES files."""
    fullest = folders.most_common(_NAMED)
    return TooLarge(
        f"There are more than {MAX_FILES:,} files, which is more than code. Nothing was sent. "
        "The fullest folders so far:",
        code="snapshot_too_large",
        field="folder",
        errors=[
            FieldError(field=visible(folder) or ".", message=f"{count:,} files")
            for folder, count in fullest
        ],
        next_step=f"{_IGNORE}, or run the command in the folder of your code.",
    )


def check_names(paths: Iterable[str]) -> None:
    """Raise InvalidInput for a path that could not be unpacked on every system, or not safely."""
    taken: dict[str, str] = {}
    for path in paths:
        if (fault := _fault(path)) is not None:
            raise _unfit(path, fault)
        key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
        other = taken.setdefault(key, path)
        if other != path:
            raise _unfit(path, f"is the same file as {visible(other)} on some systems")


def _fault(path: str) -> str | None:
    if path.count("/") >= _MAX_DEPTH:
        return f"lies more than {_MAX_DEPTH} folders deep"
    return path_error(path)


def _unfit(path: str, fault: str) -> InvalidInput:
    return InvalidInput(
        f"The file {visible(path)} {fault}, so it cannot travel. Nothing was sent.",
        code="unfit_file_name",
        field="folder",
        next_step="Rename it, or name it in .slipwayignore.",
    )


def leads_out(links: Sequence[tuple[str, str]]) -> InvalidInput:
    """Return the error for links to places outside the folder. `links` are paths and targets."""
    example = visible(links[0][0])
    return InvalidInput(
        "Links lead out of the folder, to what the job would not find. Nothing was sent.",
        code="link_leads_out",
        field="folder",
        errors=[
            FieldError(field=visible(path), message=f"links to {visible(target)}")
            for path, target in links[:_NAMED]
        ],
        next_step=f"{_IGNORE}, for example: echo '{example}' >> .slipwayignore; or copy what is "
        "needed into the folder.",
    )


def _heaviest_folder(sizes: Mapping[str, int], total: int) -> str:
    """Return the deepest folder that holds more than half of everything, or ""."""
    weights: Counter[str] = Counter()
    for path, size in sizes.items():
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            weights["/".join(parts[:depth])] += size
    heavy = [folder for folder, weight in weights.items() if 2 * weight > total]
    return max(heavy, key=lambda folder: (folder.count("/"), folder), default="")
