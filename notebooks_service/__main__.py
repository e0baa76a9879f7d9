"""`python -m notebooks_service`: the Hub, in the foreground."""

import argparse
import sys

from notebooks_service.hub import run


def main() -> int:
    """Run the service and return the exit status."""
    parser = argparse.ArgumentParser(prog="notebooks_service", description="JupyterHub of Slipway.")
    parser.add_argument("--data-dir", required=True, help="data folder")
    parser.add_argument(
        "--portal-url", required=True, help="address of the portal for this process"
    )
    parser.add_argument(
        "--public-portal-url", required=True, help="address of the portal for browsers"
    )
    parser.add_argument("--url", required=True, help="address of notebooks for browsers")
    parser.add_argument("--admission", required=True, help="file with the Hub's credentials")
    parser.add_argument("--hub-port", type=int, required=True, help="loopback port of the Hub")
    parser.add_argument("--proxy-port", type=int, required=True, help="loopback port of the proxy")
    parser.add_argument("--relay-folder", required=True, help="folder of the relay's sockets")
    parser.add_argument("--subdomains", action="store_true", help="a subdomain for each user")
    run(parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
