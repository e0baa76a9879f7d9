"""`python -m workers.lab`: one notebook server in the foreground, described by its environment."""

import sys

from workers.lab.server import run


def main() -> int:
    """Run the server and return the exit status."""
    run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
