"""Uploads what a task wrote into its working folder, as artifacts of the job's run.

It runs in the task's own sandbox, as its user and with its token, after the last rank has ended:
`python -m workers.launcher.kept_files REQUEST`, with the request as JSON. The answer is one line
of JSON on standard output. Only the standard library is used, because any interpreter of a task
may run it.

Files are hostile. Nothing follows a link, only regular files are read, each relative to the
descriptor of its folder, and never more bytes than its size at the time it was opened.
"""

import fnmatch
import http.client
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

_SCHEME: Final = "mlflow-artifacts:/"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO that replaces a file must not block the open.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MOST_LEVELS: Final = 64
_MOST_ENTRIES: Final = 200_000
_MOST_FILES: Final = 5_000
_CHUNK_BYTES: Final = 1 << 20
# MLflow's server is away for half a minute when it is started again.
_PATIENCE_S: Final = 120.0
_LONGEST_PAUSE_S: Final = 5.0
_TIMEOUT_S: Final = 30.0
_NAMED: Final = 100
_NAMED_BYTES: Final = 40_000
_PATH_CHARACTERS: Final = 300
_REASON_CHARACTERS: Final = 200
# Folders that programs fill by themselves, and that nobody looks for in a run.
CACHES: Final = frozenset(
    {
        *("__pycache__", ".git", ".ipynb_checkpoints", ".cache", ".pytest_cache", ".mypy_cache"),
        *(".ruff_cache", "node_modules", ".venv", "venv", ".tox"),
    }
)
_OUTPUTS: Final = "outputs/"


@dataclass(frozen=True)
class KeepRequest:
    """Rules of a job: glob `patterns`, of which one must match, and the most bytes in all.

    A pattern with a slash is matched with the path, any other with the name. `since_ns` is the
    change time from which a file counts as written by the task. `prefix` is the folder of the
    run's artifacts, and `seconds` the time for all of it.
    """

    work_dir: str
    patterns: tuple[str, ...]
    limit_bytes: int
    since_ns: int
    prefix: str
    seconds: float


@dataclass
class KeptFiles:
    """Uploaded files, and files left out with the reason. Lists are cut, counts are not."""

    prefix: str
    kept: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    kept_count: int = 0
    kept_bytes: int = 0
    left_out_count: int = 0
    left_out_bytes: int = 0
    error: str = ""
    _named_bytes: int = 0

    def keep(self, path: str, size: int) -> None:
        """Count a file that was uploaded."""
        self.kept_count += 1
        self.kept_bytes += size
        self._name(self.kept, {"path": readable(path), "size_bytes": size})

    def leave_out(self, path: str, size: int, reason: str) -> None:
        """Count a file that was not."""
        self.left_out_count += 1
        self.left_out_bytes += size
        reason = readable(reason)[:_REASON_CHARACTERS]
        self._name(self.left_out, {"path": readable(path), "size_bytes": size, "reason": reason})

    def _name(self, items: list[dict[str, Any]], item: dict[str, Any]) -> None:
        size = len(json.dumps(item))
        if len(items) < _NAMED and self._named_bytes + size <= 2 * _NAMED_BYTES:
            self._named_bytes += size
            items.append(item)

    def to_json(self) -> str:
        """Return one line."""
        document = asdict(self)
        del document["_named_bytes"]
        return json.dumps(document)


@dataclass(frozen=True)
class _Candidate:
    path: str
    size: int


class _TimeIsUpError(Exception):
    """The time for uploads is over."""


class _RefusedError(Exception):
    """The portal refuses everything, for example because the token has expired."""


def readable(text: str) -> str:
    """Return a name as printable text: bytes that are no UTF-8 and control characters escaped."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= _PATH_CHARACTERS else f"{text[: _PATH_CHARACTERS - 1]}…"


def size_text(size: int) -> str:
    """Return a size for people."""
    for unit, power in (("GB", 3), ("MB", 2), ("kB", 1)):
        if size >= 1000**power:
            return f"{size / 1000**power:.1f} {unit}"
    return f"{size} bytes"


def find_files(request: KeepRequest, result: KeptFiles) -> list[_Candidate]:
    """Return the files that the task wrote and its rules keep. The others are left out."""
    candidates: list[_Candidate] = []
    for path, status in _written(request, result):
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        reason = _fault(path, status, request)
        if not reason and len(candidates) >= _MOST_FILES:
            reason = f"a job keeps at most {_MOST_FILES} files"
        if reason:
            result.leave_out(path, size, reason)
        else:
            candidates.append(_Candidate(path, size))
    # Files in outputs/ come first, then small ones, so that a large file costs no others.
    candidates.sort(key=lambda item: (not item.path.startswith(_OUTPUTS), item.size, item.path))
    fitting, total = [], 0
    for item in candidates:
        if total + item.size > request.limit_bytes:
            limit = size_text(request.limit_bytes)
            result.leave_out(item.path, item.size, f"over the limit of {limit} (--keep-limit)")
            continue
        total += item.size
        fitting.append(item)
    return fitting


def _written(request: KeepRequest, result: KeptFiles) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all that is no folder and was changed since the start, by path in sorted order."""
    folders = [""]
    entries = 0
    while folders:
        folder = folders.pop()
        try:
            descriptor = open_folder(request.work_dir, folder)
        except OSError as error:
            result.leave_out(f"{folder}/", 0, f"cannot be opened: {error.strerror}")
            continue
        try:
            names = sorted(os.listdir(descriptor))  # noqa: PTH208 - accepts descriptors
            for name in names:
                entries += 1
                if entries > _MOST_ENTRIES:
                    result.error = f"more than {_MOST_ENTRIES} files: the rest was not looked at"
                    return
                path = f"{folder}/{name}" if folder else name
                try:
                    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except OSError:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    if status.st_ctime_ns >= request.since_ns:
                        yield path, status
                elif name not in CACHES and path.count("/") >= _MOST_LEVELS:
                    result.leave_out(f"{path}/", 0, f"deeper than {_MOST_LEVELS} folders")
                elif name not in CACHES:
                    folders.append(path)
        except OSError as error:
            result.leave_out(f"{folder}/", 0, f"cannot be read: {error.strerror}")
        finally:
            os.close(descriptor)


def open_folder(root: str, path: str) -> int:
    """Open a folder below `root` without following a link on the way. Raises OSError."""
    descriptor = os.open(root, _FOLDER)
    for part in path.split("/") if path else ():
        try:
            below = os.open(part, _FOLDER, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def _fault(path: str, status: os.stat_result, request: KeepRequest) -> str:
    """Return why an entry is not kept, or "" if it may be."""
    if stat.S_ISLNK(status.st_mode):
        return "a symbolic link"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if not path.isprintable() or "\\" in path:
        return "its name has a character that no artifact may have"
    if not any(_matches(path, pattern) for pattern in request.patterns):
        return "no pattern of --keep matches"
    return ""


def _matches(path: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("./")
    if pattern.endswith("/"):
        return path.startswith(pattern)
    if "/" in pattern:
        return fnmatch.fnmatchcase(path, pattern)
    return fnmatch.fnmatchcase(path.rpartition("/")[2], pattern)


class Uploader:
    """Connection to the artifacts of the task's run, opened again where it breaks."""

    def __init__(self, env: dict[str, str], *, until: float) -> None:
        """`until` is a time of `time.monotonic`."""
        self._url = urlsplit(env["MLFLOW_TRACKING_URI"])
        self._headers = {"Authorization": f"Bearer {env['MLFLOW_TRACKING_TOKEN']}"}
        self._run = env["MLFLOW_RUN_ID"]
        self._until = until
        self._connection: http.client.HTTPConnection | None = None
        self._root = ""
        self._away_since: float | None = None

    def find_root(self) -> None:
        """Read where the run's artifacts are. Raises OSError, _RefusedError, _TimeIsUpError."""
        path = f"/api/2.0/mlflow/runs/get?run_id={quote(self._run, safe='')}"
        status, body = self._request("GET", path, None, 0)
        if status != http.client.OK:
            raise _RefusedError(_message(status, body))
        uri = str(json.loads(body)["run"]["info"]["artifact_uri"])
        if not uri.startswith(_SCHEME):
            raise _RefusedError("the run keeps its artifacts elsewhere")
        self._root = uri.removeprefix(_SCHEME).strip("/")

    def put(self, descriptor: int, path: str, size: int) -> str:
        """Upload `size` bytes of an open file. Returns the reason if that failed, or ""."""
        target = quote(f"{self._root}/{path}", safe="/~")
        url = f"/api/2.0/mlflow-artifacts/artifacts/{target}"
        status, body = self._request("PUT", url, descriptor, size)
        if status in (401, 403):
            raise _RefusedError(_message(status, body))
        return "" if status < http.client.MULTIPLE_CHOICES else _message(status, body)

    def _request(
        self, method: str, path: str, descriptor: int | None, size: int
    ) -> tuple[int, bytes]:
        """Send a request, again and again while the portal is away, over all files once."""
        pause_s = 0.2
        while True:
            try:
                status, body = self._send(method, path, descriptor, size)
                if status not in (429, 500, 502, 503, 504):
                    self._away_since = None
                    return status, body
                last: Exception = OSError(_message(status, body))
            except (OSError, http.client.HTTPException) as error:
                self._close()
                if isinstance(error, _ChangedError):
                    raise
                last = error
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
            patience_s = self._away_since + _PATIENCE_S - now
            if patience_s <= 0:
                raise OSError(str(last) or type(last).__name__)
            time.sleep(min(pause_s, patience_s, self._left_s()))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _send(self, method: str, path: str, descriptor: int | None, size: int) -> tuple[int, bytes]:
        if self._connection is None:
            https = self._url.scheme == "https"
            kind = http.client.HTTPSConnection if https else http.client.HTTPConnection
            self._connection = kind(self._url.hostname or "", self._url.port)
        connection = self._connection
        connection.timeout = min(_TIMEOUT_S, self._left_s())
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        connection.putrequest(method, f"{self._url.path.rstrip('/')}{path}")
        for name, value in self._headers.items():
            connection.putheader(name, value)
        if descriptor is not None:
            connection.putheader("Content-Type", "application/octet-stream")
            connection.putheader("Content-Length", str(size))
        connection.endheaders()
        if descriptor is not None:
            os.lseek(descriptor, 0, os.SEEK_SET)
            left = size
            while left:
                self._left_s()
                piece = os.read(descriptor, min(_CHUNK_BYTES, left))
                if not piece:
                    raise _ChangedError
                connection.send(piece)
                left -= len(piece)
        response = connection.getresponse()
        return response.status, response.read(1 << 20)

    def _left_s(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise _TimeIsUpError
        return left

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _ChangedError(OSError):
    """A file has become shorter while it was read."""

    def __init__(self) -> None:
        super().__init__("it changed while it was read")


def _message(status: int, body: bytes) -> str:
    try:
        document = json.loads(body)
        text = str(document.get("message") or document.get("detail") or "")
    except (ValueError, AttributeError):
        text = ""
    return f"Slipway refused it ({status}){': ' if text else ''}{text}"


def upload(
    request: KeepRequest, files: list[_Candidate], result: KeptFiles, uploader: Uploader
) -> None:
    """Upload the files. What fails is left out with its reason."""
    fault = ""
    for item in files:
        if not fault:
            try:
                _upload_one(request, item, result, uploader)
                continue
            except _TimeIsUpError:
                fault = "the time for uploads was over"
            except _RefusedError as error:
                fault = str(error)
        result.leave_out(item.path, item.size, fault)


def _upload_one(
    request: KeepRequest, item: _Candidate, result: KeptFiles, uploader: Uploader
) -> None:
    folder, _, name = item.path.rpartition("/")
    try:
        parent = open_folder(request.work_dir, folder)
        try:
            descriptor = os.open(name, _FILE, dir_fd=parent)
        finally:
            os.close(parent)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > item.size:
                reason = "it changed while it was read"
            else:
                path = f"{request.prefix}/{item.path}"
                reason = uploader.put(descriptor, path, status.st_size)
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        result.leave_out(item.path, item.size, reason)
    else:
        result.keep(item.path, status.st_size)


def keep(request: KeepRequest, env: dict[str, str]) -> KeptFiles:
    """Find, upload and count."""
    until = time.monotonic() + request.seconds
    result = KeptFiles(request.prefix)
    files = find_files(request, result)
    if not files:
        return result
    fault = ""
    try:
        uploader = Uploader(env, until=until)
        uploader.find_root()
    except _TimeIsUpError:
        fault = "the time for uploads was over"
    except KeyError as error:
        fault = f"the task has no variable {error.args[0]}"
    except (_RefusedError, OSError, ValueError) as error:
        fault = f"the run's artifacts cannot be reached: {error}"
    if fault:
        for item in files:
            result.leave_out(item.path, item.size, fault)
    else:
        upload(request, files, result, uploader)
    return result


def main() -> None:
    """Entry of the process that a shim starts."""
    document = json.loads(sys.argv[1])
    document["patterns"] = tuple(document["patterns"])
    request = KeepRequest(**document)
    with suppress(BrokenPipeError):
        sys.stdout.write(f"{keep(request, dict(os.environ)).to_json()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
