"""A real S3-compatible server for the tests: OpenStack Swift with its s3api, on free ports.

Swift is kept, is on PyPI, checks AWS signatures, and streams objects to and from the disk. It needs
a file system with user attributes (ext4, xfs, btrfs, overlayfs). It runs as four processes of one
process group, which ends with the test that started it.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import s3fs

ACCESS_KEY = "slipway:tester"
SECRET_KEY = "not-a-secret-outside-this-test"
_START_DEADLINE_S = 60
_RINGS = """
import sys
from swift.common.ring import RingBuilder
folder, *kinds = sys.argv[1:]
for kind in kinds:
    name, port = kind.split(":")
    builder = RingBuilder(1, 1, 0)
    builder.add_dev({"id": 0, "region": 1, "zone": 1, "weight": 1.0, "ip": "127.0.0.1",
                     "port": int(port), "device": "disk", "meta": "",
                     "replication_ip": "127.0.0.1", "replication_port": int(port)})
    builder.rebalance()
    builder.get_ring().save(f"{folder}/{name}.ring.gz")
"""
_SWIFT = """[swift-hash]
swift_hash_path_suffix = tests
swift_hash_path_prefix = tests
[storage-policy:0]
name = one
default = yes
"""
_DEFAULTS = """[DEFAULT]
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
disable_fallocate = true
bind_ip = {host}
bind_port = {port}
workers = 0
user = {user}
log_level = ERROR
recon_cache_path = {folder}
"""
_STORAGE = """[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
_PROXY = """[pipeline:main]
pipeline = catch_errors listing_formats s3api tempauth copy slo proxy-server
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_slipway_tester = {secret} .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
"""


@dataclass(frozen=True)
class S3Server:
    """A running server."""

    endpoint_url: str
    proxy_pid: int

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the server for the duration of a block, with its port open."""
        os.kill(self.proxy_pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.proxy_pid, signal.SIGCONT)

    @property
    def options(self) -> dict[str, Any]:
        """What fsspec needs to reach it."""
        return {"endpoint_url": self.endpoint_url, "key": ACCESS_KEY, "secret": SECRET_KEY}

    def make_bucket(self, name: str) -> None:
        """Create a bucket."""
        files = s3fs.S3FileSystem(
            client_kwargs={"region_name": "us-east-1"}, skip_instance_cache=True, **self.options
        )
        files.mkdir(name)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for server_socket in sockets:
            server_socket.bind(("127.0.0.1", 0))
        return [server_socket.getsockname()[1] for server_socket in sockets]
    finally:
        for server_socket in sockets:
            server_socket.close()


def _wait_until_open(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_DEADLINE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"Swift did not start: {log.read_text(errors='replace')[-2000:]}")


def _check_attributes(folder: Path) -> None:
    probe = folder / "probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.slipway", b"1")
    except OSError as error:
        raise RuntimeError(
            f"{folder} lies on a file system without user attributes; set TMPDIR to a folder on "
            "ext4, xfs or btrfs for this test"
        ) from error


@contextmanager
def s3_server(*, host: str = "127.0.0.1", port: int = 0) -> Iterator[S3Server]:
    """Run a server for the duration of a block; its door is on any port unless one is named."""
    programs = Path(sys.executable).parent
    user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
    with TemporaryDirectory(prefix="swift-") as name:
        folder = Path(name)
        _check_attributes(folder)
        (folder / "devices" / "disk").mkdir(parents=True)
        (folder / "swift.conf").write_text(_SWIFT)
        kinds = ("account", "container", "object", "proxy")
        ports = dict(zip(kinds, _free_ports(len(kinds)), strict=True))
        ports["proxy"] = port or ports["proxy"]
        rings = [f"{kind}:{ports[kind]}" for kind in kinds[:-1]]
        subprocess.run([sys.executable, "-c", _RINGS, name, *rings], check=True)
        started: list[subprocess.Popen[bytes]] = []
        try:
            for kind in kinds:
                bound = host if kind == "proxy" else "127.0.0.1"
                defaults = _DEFAULTS.format(folder=folder, host=bound, port=ports[kind], user=user)
                own = _PROXY.format(secret=SECRET_KEY) if kind == "proxy" else _STORAGE
                (folder / f"{kind}.conf").write_text(defaults + own.replace("{kind}", kind))
                with (folder / f"{kind}.log").open("wb") as log:
                    started.append(
                        subprocess.Popen(
                            [programs / f"swift-{kind}-server", folder / f"{kind}.conf"],
                            stdout=log,
                            stderr=subprocess.STDOUT,
                            start_new_session=True,
                        )
                    )
            for kind, process in zip(kinds, started, strict=True):
                _wait_until_open(ports[kind], process, folder / f"{kind}.log")
            yield S3Server(f"http://127.0.0.1:{ports['proxy']}", started[-1].pid)
        finally:
            for process in started:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            shutil.rmtree(folder / "devices", ignore_errors=True)


if __name__ == "__main__":
    # In a container of its own: one bucket, until it is stopped.
    with s3_server(host="0.0.0.0", port=9000) as server:  # noqa: S104  (a network of the test's)
        server.make_bucket("slipway")
        signal.pause()
