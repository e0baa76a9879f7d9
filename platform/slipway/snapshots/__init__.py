"""Snapshot of a folder's code: one archive, the same bytes for the same code, and its git state.

    with take_snapshot("my-project") as snapshot:
        print(snapshot.digest, snapshot.files, snapshot.git)

Inside a git repository the files are those git does not ignore. Elsewhere the patterns of
.gitignore and a list of usual suspects (caches, virtual environments) decide. A file .slipwayignore
takes out more, in both cases. Secrets and links that lead out of the folder never travel.
"""

from slipway.snapshots.folder import ExcludedFile
from slipway.snapshots.limits import DEFAULT_LIMIT_BYTES, HARD_LIMIT_BYTES
from slipway.snapshots.snapshot import Snapshot, take_snapshot

__all__ = [
    "DEFAULT_LIMIT_BYTES",
    "HARD_LIMIT_BYTES",
    "ExcludedFile",
    "Snapshot",
    "take_snapshot",
]
