"""`python -m workers.tracking SOCKET KEY_FILE`: serve MLflow to the portal alone, until SIGTERM.

SOCKET is a Unix socket that only the owner of the installation can open; no port is bound. KEY_FILE
holds the secret that each request must carry: its path may be on a command line, it may not. The
tables are named by SLIPWAY_TRACKING_STORE and the artifacts by SLIPWAY_TRACKING_ARTIFACTS, which
may hold passwords.
"""

import gc
import os
import sys

from workers.tracking.environment import configure, taken

# Looking for garbage among all that is loaded at a start only takes time.
gc.set_threshold(100_000, 10, 10)
configure(
    os.environ,
    store=taken("SLIPWAY_TRACKING_STORE"),
    artifacts=taken("SLIPWAY_TRACKING_ARTIFACTS"),
)

from workers.tracking.server import serve  # noqa: E402  (the environment comes first)

if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
