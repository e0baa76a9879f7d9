"""`python -m workers.tracking SOCKET KEY_FILE`: serve MLflow to the portal only, until SIGTERM.

SOCKET is a Unix socket that only the owner of the installation can open. No port is bound. KEY_FILE
holds the secret that each request must carry: its path may be on a command line, the secret may
not. SLIPWAY_TRACKING_STORE names the database and SLIPWAY_TRACKING_ARTIFACTS the artifact root.
Both may hold passwords.
"""

import gc
import os
import sys

from workers.tracking.environment import configure, pop_variable

# Collecting garbage among the modules that load at start takes time and finds nothing.
gc.set_threshold(100_000, 10, 10)
configure(
    os.environ,
    store=pop_variable("SLIPWAY_TRACKING_STORE"),
    artifacts=pop_variable("SLIPWAY_TRACKING_ARTIFACTS"),
)

from workers.tracking.server import serve  # noqa: E402  (the environment comes first)

if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
