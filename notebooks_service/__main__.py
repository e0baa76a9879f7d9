"""`python -m notebooks_service`: the Hub, in the foreground."""

import argparse
import sys

from notebooks_service.hub import run


def main() -> int:
    """Run the service and return the exit status."""
    parser = argparse.ArgumentParser(prog="notebooks_service", description="JupyterHub of Slipway.")
    parser.add_argument("--data-dir", required=True, help="folder of its own")
    parser.add_argument("--portal-url", required=True, help="the portal as this process reaches it")
    parser.add_argument("--public-portal-url", required=True, help="the portal as browsers do")
    parser.add_argument("--url", required=True, help="the notebooks' origin as browsers reach it")
    parser.add_argument("--admission", required=True, help="file with what it was let in with")
    parser.add_argument("--hub-port", type=int, required=True, help="loopback port of the Hub")
    parser.add_argument("--proxy-port", type=int, required=True, help="loopback port of the proxy")
    parser.add_argument("--subdomains", action="store_true", help="a subdomain for each person")
    run(parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
