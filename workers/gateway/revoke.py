"""`python -m workers.gateway.revoke`: refuse a key on this host, even without the portal.

The gateway reads the file four times a second and retains revocations across restarts, whatever its
snapshot contains. Revoke the key in the portal as well, once that is back.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from workers.gateway.snapshot import read_revoked, read_snapshot
from workers.launcher.atomic_files import write_atomically


def _served_keys(folder: Path) -> set[str] | None:
    """Return ids and digests of the keys a gateway serves, or None without a readable snapshot."""
    snapshot = read_snapshot(folder / "snapshot.json")
    if snapshot is None:
        return None
    keys = [key for endpoint in snapshot.endpoints for key in endpoint.keys]
    return {key.id for key in keys} | {key.sha256 for key in keys}


def _revoke(folder: Path, keys: set[str], *, force: bool) -> str:
    """Add keys to the file of one gateway and return an error message, or "" on success."""
    known = _served_keys(folder)
    if known is None and not force:
        return (
            f"{folder} is not the data folder of a gateway. Give the folder that the gateway was "
            "started with (for `make up`, the folder gateway in its data folder), or add "
            "--force."
        )
    path = folder / "revoked.json"
    try:
        before = read_revoked(path)
        unknown = sorted(keys - (known or keys) - before)
        write_atomically(path, json.dumps(sorted(before | (keys if force else keys - {*unknown}))))
    except (OSError, ValueError) as error:
        return f"{path} cannot be written: {error}"
    if unknown and not force:
        return (
            f"The gateway of {folder} serves no key {', '.join(unknown)}: it is revoked or "
            "expired already, or mistyped. To revoke it anyway, add --force."
        )
    sys.stdout.write(f"{folder}: {len(before | keys)} keys are revoked on this host.\n")
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Add keys to the file and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workers.gateway.revoke", description=__doc__)
    parser.add_argument(
        "--data-dir",
        type=Path,
        required=True,
        action="append",
        help="the gateway's data folder; repeatable for several gateways on this host",
    )
    parser.add_argument("--stdin", action="store_true", help="read the text of one key from stdin")
    parser.add_argument(
        "--force", action="store_true", help="revoke keys that are unknown to this gateway"
    )
    parser.add_argument("key", nargs="*", help="id of a key, or its SHA-256 in hex")
    options = parser.parse_args(arguments)
    keys = {key.strip() for key in options.key}
    if options.stdin:
        keys.add(hashlib.sha256(sys.stdin.readline().strip().encode()).hexdigest())
    if not keys:
        parser.error("give a key id, or the key's text with --stdin")
    problems = [_revoke(folder, keys, force=options.force) for folder in options.data_dir]
    for problem in filter(None, problems):
        sys.stderr.write(f"{problem}\n")
    return int(any(problems))


if __name__ == "__main__":
    sys.exit(main())
