"""`python -m workers.gateway.revoke`: refuse a key on this host, at once and with the portal down.

The gateway looks at the file four times a second and keeps to it across restarts, whatever its
snapshot says. Revoke the key in the portal as well, once that is back.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from workers.gateway.snapshot import read_revoked
from workers.launcher.durable import write_atomically

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Add keys to the file; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workers.gateway.revoke", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="the gateway's data folder")
    parser.add_argument("--stdin", action="store_true", help="read the text of one key from stdin")
    parser.add_argument("key", nargs="*", help="id of a key, or its SHA-256 in hex")
    found = parser.parse_args(arguments)
    added = set(found.key)
    if found.stdin:
        added.add(hashlib.sha256(sys.stdin.readline().strip().encode()).hexdigest())
    if not added:
        parser.error("name a key, or give its text with --stdin")
    path = found.data_dir / "revoked.json"
    try:
        revoked = read_revoked(path) | added
        write_atomically(path, json.dumps(sorted(revoked)))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{path} cannot be written: {error}\n")
        return 1
    sys.stdout.write(f"{len(revoked)} keys are refused on this host.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
