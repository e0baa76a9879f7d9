"""Every save in JupyterLab becomes a version in the portal: an extension of Jupyter Server.

A save waits for nothing but a copy of the file into a queue on the disk. A thread sends what is
queued, oldest first, and tries again for as long as the portal is away. What a server that was
killed had not sent, the next one sends. The same thread writes what was restored or branched in the
portal into the workspace, unless the file there has changes of its own.

Standard library only: `c.ServerApp.jpserver_extensions = {"slipway.lab_saves": True}`.
"""

import atexit
import contextlib
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from slipway.schemas.notebook import is_reserved
from slipway.shared_folder import SharedFolder
from slipway.workload_client import ApiAddress, api_address_from

log = logging.getLogger("slipway.lab_saves")
_SUFFIX = ".ipynb"
_STATE = ".slipway"
_KNOWN = f"{_STATE}/known.json"
_LONGEST_PAUSE_S = 30.0
_LOOK_EVERY_S = 15.0
_MAX_BYTES = 20 * 1024**2
# Limit with outputs, which are shortened before it is sent.
_MAX_SAVED_BYTES = 10 * _MAX_BYTES
# Enough for ten thousand notebooks, and small in memory whatever the file contains.
_MAX_KNOWN_BYTES = 2 * 1024**2
# A server has about ten seconds to stop. The next server sends the remaining notebooks.
_SENT_AT_END_WITHIN_S = 4.0


class SaveQueue:
    """Copies of saved notebooks that wait to be sent, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last = 0
        self._lock = threading.Lock()

    def put(self, path: str, content: bytes) -> None:
        """Add what was saved at `path` of the workspace."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._last = max(time.time_ns(), self._last + 1)
            place = self._folder / f"{self._last:020d}.save"
        part = place.with_suffix(".part")
        part.write_bytes(path.encode("utf-8", "surrogateescape") + b"\n" + content)
        part.replace(place)

    def waiting(self) -> Iterator[Path]:
        """Yield what waits, oldest first."""
        with contextlib.suppress(OSError):
            yield from sorted(self._folder.glob("*.save"))

    def read(self, place: Path) -> tuple[str, bytes]:
        """Return path and content of a save, or raise OSError."""
        path, _, content = place.read_bytes().partition(b"\n")
        return path.decode("utf-8", "surrogateescape"), content


class LocalChangesError(Exception):
    """The file in the workspace is neither what was saved nor what was written last."""


class Sender:
    """Sends queued saves, and brings what the portal restored, in a thread of its own."""

    def __init__(self, api: ApiAddress, *, workspace: Path, queue: SaveQueue) -> None:
        self._api = api
        self._workspace = SharedFolder(workspace)
        self._skipped: dict[str, int] = {}
        self.queue = queue
        self._wake = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="slipway-saves", daemon=True)

    def start(self) -> None:
        """Start the thread. Saves of an earlier server are sent first."""
        self._thread.start()

    def saved(self, path: str, content: bytes) -> None:
        """Queue a save. Never raises, and never waits for the network."""
        try:
            self.queue.put(path, content)
        except OSError:
            log.exception("a save of %s could not be queued", path)
        self._wake.set()

    def stop(self, *, within_s: float) -> None:
        """Send queued saves within a time limit. The next server sends the rest."""
        self._over = True
        self._wake.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        pause = 1.0
        while True:
            self._wake.clear()
            try:
                done = self.send_waiting() and (self._over or self.download_restored())
            except Exception:
                log.exception("saves could not be sent")
                done = False
            if self._over:
                return
            pause = _LOOK_EVERY_S if done else min(_LONGEST_PAUSE_S, pause * 2)
            self._wake.wait(pause)
            pause = 1.0 if done else pause

    def send_waiting(self) -> bool:
        """Send queued saves. False if the portal did not accept all of them."""
        for place in self.queue.waiting():
            try:
                path, content = self.queue.read(place)
            except FileNotFoundError:
                continue  # another server of the same user has sent it
            answer = self._api.call(
                "POST",
                f"notebook-files?path={quote(path, safe='', errors='surrogateescape')}",
                _fitting(content),
                kind="application/octet-stream",
            )
            if answer.error and answer.may_pass:
                return False
            if answer.error:
                log.warning("the save of %s was not taken in: %s", path, answer.error)
            else:
                document = json.loads(answer.content)
                self._note(path, document["latest"]["number"], content)
            place.unlink(missing_ok=True)
        return True

    def download_restored(self) -> bool:
        """Write notebooks restored or branched in the portal. False if it does not answer."""
        answer = self._api.call("GET", "notebook-files?limit=200")
        if answer.error:
            return False
        known = self._read_known()
        for file in json.loads(answer.content)["items"]:
            path, number = str(file["path"]), int(file["latest"]["number"])
            note = known.get(path, {})
            if file["latest"]["origin"] == "save" or number <= note.get("number", 0):
                continue
            try:
                self._require_no_changes(path, note.get("sha256"))
                where = f"notebook-files/{file['id']}/versions/{number}/content"
                content = self._api.call("GET", where)
                if content.may_pass:
                    return False
                if content.error:
                    raise OSError(content.error)
                self._workspace.write(path, content.content)
            except LocalChangesError:
                continue
            except (OSError, ValueError) as error:
                self._report_skipped(path, number, error)
                continue
            self._note(path, number, content.content)
        return True

    def _require_no_changes(self, path: str, known: str | None) -> None:
        """Raise OwnChangesError for a file that was changed here, OSError for what is no file."""
        if is_reserved(path):
            raise OSError("the name is reserved")
        try:
            content = self._workspace.read(path, limit_bytes=_MAX_BYTES)
        except FileNotFoundError:
            return
        if hashlib.sha256(content).hexdigest() != known:
            raise LocalChangesError

    def _report_skipped(self, path: str, number: int, error: Exception) -> None:
        """Log a version that cannot be written, once."""
        if self._skipped.get(path) != number:
            self._skipped[path] = number
            log.warning("version %d of %s was not written: %s", number, path, error)

    def _read_known(self) -> dict[str, dict[str, Any]]:
        try:
            document = json.loads(self._workspace.read(_KNOWN, limit_bytes=_MAX_KNOWN_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        files = document.items() if isinstance(document, dict) else ()
        return {path: noted for path, noted in files if _is_note(noted)}

    def _note(self, path: str, number: int, content: bytes) -> None:
        known = self._read_known()
        known[path] = {"number": number, "sha256": hashlib.sha256(content).hexdigest()}
        try:
            self._workspace.write(_KNOWN, json.dumps(known).encode())
        except (OSError, ValueError) as error:
            log.warning("what was saved could not be noted: %s", error)


def _fitting(content: bytes) -> bytes:
    """Return the notebook, without its results where it is too large with them."""
    if len(content) <= _MAX_BYTES:
        return content
    try:
        notebook = json.loads(content)
        for cell in notebook["cells"]:
            if cell.get("cell_type") == "code":
                cell["outputs"] = []
        return json.dumps(notebook).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return content


def _is_note(noted: object) -> bool:
    return isinstance(noted, dict) and isinstance(noted.get("number"), int)


def sender_of(workspace: Path) -> Sender | None:
    """Return the sender of a server whose files are in `workspace`, or None outside of Slipway.

    The workspace is the project's. The queue is the person's, in whose name versions are made of
    it, so it is where nobody else writes.
    """
    api = api_address_from(os.environ)
    if api is None:
        return None
    personal = Path(os.environ.get("SLIPWAY_PERSONAL_DIR") or Path.home())
    return Sender(api, workspace=workspace, queue=SaveQueue(personal / _STATE / "saves"))


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "slipway.lab_saves"}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Hook into the saves of a Jupyter Server, which calls it."""
    workspace = Path(server.root_dir).resolve()
    sender = sender_of(workspace)
    if sender is None:
        server.log.info("slipway.lab_saves: not in a Slipway workload; saves make no versions")
        return

    def after_save(model: dict[str, Any], os_path: str, **_: Any) -> None:
        place = Path(os_path)
        if model.get("type") != "notebook" or place.suffix != _SUFFIX:
            return
        try:
            resolved = place.resolve()
            if not resolved.is_relative_to(workspace):
                return  # in the personal folder, which has no versions in the project
            path = resolved.relative_to(workspace).as_posix()
            # Does not follow links that have replaced a folder since.
            content = SharedFolder(workspace).read(path, limit_bytes=_MAX_SAVED_BYTES)
        except (OSError, RuntimeError):
            log.exception("a save could not be read")
            return
        sender.saved(path, content)

    server.contents_manager.register_post_save_hook(after_save)
    sender.start()
    atexit.register(sender.stop, within_s=_SENT_AT_END_WITHIN_S)
