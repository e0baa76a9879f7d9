"""`python -m workers.lab`: one notebook server in the foreground, described by its environment."""

import os
import sys

# It builds parsers of a format that no schema of Jupyter uses, for as long as all the rest of the
# import takes; jsonschema does without it.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
# Without it the Hub's package would load its older, larger kind of server.
os.environ.setdefault("JUPYTERHUB_SINGLEUSER_EXTENSION", "1")

from workers.lab.server import run  # noqa: E402  (what stands above must come first)


def main() -> int:
    """Serve; returns the exit status."""
    run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
