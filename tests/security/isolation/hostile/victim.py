"""A task of another project, with secrets everywhere a task keeps something.

It runs until it is stopped, prints where it put what, and from then on that it lives. Only the
standard library is used. Secrets come in variables named CANARY_…, as a project's secrets do.
"""

import ctypes
import json
import os
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
KIND = {name: value for name, value in os.environ.items() if name.startswith("CANARY_")}


class Service(BaseHTTPRequestHandler):
    """Answers everybody, as an experiment dashboard does."""

    def do_GET(self) -> None:
        body = KIND["CANARY_HTTP"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


def own_tmp() -> str:
    """The folder of temporary files, by the path that it has outside of a sandbox as well."""
    beside = os.path.join(os.path.dirname(os.environ["HOME"]), "tmp")
    return beside if os.path.isdir(beside) else os.path.realpath(os.environ["TMPDIR"])


def put_files(mark: str) -> dict[str, list[str]]:
    """Write a secret into every folder of the task, readable by all as files usually are."""
    names = ("HOME", "SLIPWAY_PERSISTENT_DIR", "SLIPWAY_CACHE", "SLIPWAY_PERSONAL_DIR")
    folders = [os.getcwd(), own_tmp(), *(os.environ[name] for name in names if name in os.environ)]
    paths = []
    for folder in (*folders, "/tmp", tempfile.gettempdir()):
        path = f"{folder}/{mark}.txt"
        with suppress(OSError), open(path, "w") as file:
            file.write(KIND["CANARY_FILE"])
            paths.append(path)
    with suppress(OSError), open(f"/dev/shm/{mark}", "w") as file:
        file.write(KIND["CANARY_SHM"])
    return {"paths": sorted(set(paths)), "folders": sorted(set(folders))}


def share_memory(mark: str, key: int) -> None:
    """System V memory, a POSIX queue and a key of the kernel, as libraries make them."""
    LIBC.shmat.restype = ctypes.c_void_p
    segment = LIBC.shmget(key, 64, 0o1600)
    address = LIBC.shmat(segment, None, 0)
    if segment >= 0 and address not in (None, ctypes.c_void_p(-1).value):
        ctypes.memmove(address, KIND["CANARY_SYSV"].encode(), len(KIND["CANARY_SYSV"]))
    queue = LIBC.mq_open(f"/{mark}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
    if queue >= 0:
        LIBC.mq_send(queue, KIND["CANARY_QUEUE"].encode(), len(KIND["CANARY_QUEUE"]), 0)
    secret = KIND["CANARY_KEY"].encode()
    LIBC.syscall(248, b"user", mark.encode(), secret, len(secret), -4)


def listen(address: str) -> None:
    """Answer with a secret on a Unix socket."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    os.chmod(address, 0o777) if not address.startswith("\0") else None

    def serve() -> None:
        while True:
            client, _ = server.accept()
            with client, suppress(OSError):
                client.sendall(KIND["CANARY_SOCKET"].encode())

    threading.Thread(target=serve, daemon=True).start()


def addresses() -> list[str]:
    """The name and the address of this machine, or of this container, towards others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return [socket.gethostname(), probe.getsockname()[0]]
    return [socket.gethostname()]


def main() -> None:
    """Put everything in place, say where, and live; `leave` ends at once."""
    mark, key, ending = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    places: dict[str, Any] = put_files(mark)
    share_memory(mark, key)
    held = [KIND["CANARY_MEMORY"][::-1][::-1] for _ in range(100)]
    if ending == "leave":
        print("left", json.dumps(places), flush=True)
        return
    path = f"{own_tmp()}/s"
    listen(path)
    listen(f"\0{mark}")
    # In a container on its own network, as dashboards do; elsewhere for this machine alone.
    listening = "0.0.0.0" if os.path.exists("/.dockerenv") else "127.0.0.1"
    http = HTTPServer((listening, 0), Service)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    places |= {"sockets": [path], "abstract": [mark], "ports": [http.server_port]}
    places["hosts"] = ["127.0.0.1", *addresses()]
    print("placed", json.dumps(places), flush=True)
    beat = 0
    while held:
        beat += 1
        print("beat", beat, flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
