"""Settings of a gateway, read once from the command line."""

import argparse
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.schemas.hosts import authorities_of, parse_authority


@dataclass(frozen=True)
class GatewaySettings:
    """Settings of one gateway process. Without `portal_url` it serves the snapshot on its disk."""

    data_dir: Path
    host: str
    port: int
    name: str
    portal_url: str | None
    token_file: Path | None
    public_url: str | None
    allowed_hosts: tuple[str, ...]
    predictions_dir: Path
    max_connections: int
    held_bytes: int
    head_within_s: float
    capture_bytes: int
    health_port: int | None
    relay_folder: Path | None

    @property
    def snapshot_path(self) -> Path:
        """The last valid snapshot."""
        return self.data_dir / "snapshot.json"

    @property
    def revoked_path(self) -> Path:
        """Keys that an operator revoked on this host."""
        return self.data_dir / "revoked.json"

    @property
    def health_token_path(self) -> Path:
        """The token for health details and for metrics."""
        return self.data_dir / "health-token"

    @property
    def capture_dir(self) -> Path:
        """The log of predictions that are not in Parquet yet."""
        return self.data_dir / "capture"


def _name() -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", socket.gethostname())[:48].strip("-") or "gateway"


def _url(text: str) -> str:
    authorities_of(text)
    return text.rstrip("/")


def _host(text: str) -> str:
    parse_authority(text.removeprefix("."))
    return text


def read_settings(arguments: Sequence[str]) -> GatewaySettings:
    """Parse the command line. On an error print it and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.gateway",
        description="The Slipway gateway: keys, limits, routing and capture of predictions.",
    )
    add = parser.add_argument
    add(
        "--data-dir",
        type=Path,
        required=True,
        help="data folder of this process; must survive restarts",
    )
    add("--host", default="127.0.0.1", help="where to listen (%(default)s)")
    add("--port", type=int, default=8002, help="port, 0 for any (%(default)s)")
    add("--name", default=_name(), help="name in reports (%(default)s)")
    add("--portal-url", help="address of the portal, for example http://127.0.0.1:8000")
    add("--token-file", type=Path, help="file with the token for the portal")
    add("--public-url", type=_url, help="address at which clients reach it")
    add(
        "--allow-host",
        type=_host,
        action="append",
        default=[],
        metavar="HOST[:PORT]",
        help="another accepted host name; .HOST for all names of a domain; repeatable",
    )
    add("--predictions-dir", type=Path, help="where to write Parquet; default: in the data folder")
    add("--max-connections", type=int, default=10_000)
    add("--head-within-s", type=float, default=10.0, help="timeout for slow clients (%(default)s)")
    add("--held-mib", type=int, default=1024, help="memory for bodies in flight (%(default)s)")
    add(
        "--capture-mib", type=int, default=4096, help="disk for unshipped predictions (%(default)s)"
    )
    add("--health-port", type=int, help="loopback port of health and metrics, 0 for any")
    add(
        "--relay-folder",
        type=Path,
        help="folder of the relay's sockets, through which replicas in pools are reached",
    )
    args = parser.parse_args(arguments)
    data_dir = args.data_dir.absolute()
    return GatewaySettings(
        data_dir=data_dir,
        host=args.host,
        port=args.port,
        name=args.name,
        portal_url=args.portal_url.rstrip("/") if args.portal_url else None,
        token_file=args.token_file,
        public_url=args.public_url,
        allowed_hosts=tuple(args.allow_host),
        predictions_dir=(args.predictions_dir or data_dir / "predictions").absolute(),
        max_connections=args.max_connections,
        held_bytes=args.held_mib << 20,
        head_within_s=args.head_within_s,
        capture_bytes=args.capture_mib << 20,
        health_port=args.health_port,
        relay_folder=args.relay_folder.absolute() if args.relay_folder else None,
    )
