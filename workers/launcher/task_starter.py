"""Starts a task in the container of its image: of its pod, or of Enroot or Apptainer.

It travels as text and needs only the Python of the image. The agent, outside of the container,
answers with one program to run: the shim of the task. Without an answer the agent has ended, and
so does this.
"""

import json
import os
import socket
import subprocess
import sys
import time

CONNECTS_WITHIN_S = 600.0
_NOT_OF_THE_IMAGE = ("proc", "sys", "dev", "tmp")
_SMI = ("nvidia-smi", "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits")


def folders_beside(private: "list[str]", folder: str = "/") -> "list[str]":
    """Return folders and files that hold everything in `folder` except the private folders."""
    kept = []
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 - it needs no more than `os`
        path = os.path.join(folder, name)  # noqa: PTH118
        if (folder == "/" and name in _NOT_OF_THE_IMAGE) or path in private:
            continue
        if any(place.startswith(path + "/") for place in private):
            kept += folders_beside(private, path)
        else:
            kept.append(path)
    return kept


def cards() -> "list[dict[str, object]]":
    """Return the GPUs that this container sees."""
    try:
        done = subprocess.run(_SMI, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [line.rsplit(", ", 1) for line in done.stdout.splitlines() if line.count(", ") >= 2]
    return [
        {
            "uuid": names.partition(", ")[0],
            "model": names.partition(", ")[2],
            "memory_bytes": int(mebibytes) << 20,
        }
        for names, mebibytes in lines
        if mebibytes.isdigit()
    ]


def own_tmp() -> str:
    """Return /tmp if it is a mount, which only this container has and which ends with it."""
    with open("/proc/self/mountinfo") as mounts:  # noqa: PTH123
        is_mounted = any(line.split()[4] == "/tmp" for line in mounts)  # noqa: S108
    return "/tmp" if is_mounted else ""  # noqa: S108


def connect(path: str) -> socket.socket:
    """Return a connection to the agent, which may start later. Raises SystemExit."""
    until = time.monotonic() + CONNECTS_WITHIN_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            if time.monotonic() > until:
                raise SystemExit(f"the agent has not started: {error}") from error
            time.sleep(0.05)
        else:
            return connection


def main(path: str, private: "list[str]") -> None:
    """Describe the image to the agent at `path`, and run what it sends."""
    image = {
        "python": sys.executable,
        "variables": [f"{name}={value}" for name, value in os.environ.items()],
        "readable": folders_beside(private),
        "gpus": cards(),
        "tmp": own_tmp(),
    }
    with connect(path) as connection:
        connection.sendall(json.dumps(image).encode() + b"\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    header, _, launch = answer.partition(b"\n")
    if not header:
        return
    program = json.loads(header)
    if len(launch) != program["size"]:
        return
    with open(program["log"], "ab") as log:  # noqa: PTH123
        # The end of the task is in its journal. A status would end the pod as failed.
        subprocess.run(
            [sys.executable, *program["arguments"]],
            input=launch,
            env={"LANG": "C.UTF-8"},
            cwd="/",
            stdout=log,
            stderr=log,
            check=False,
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
