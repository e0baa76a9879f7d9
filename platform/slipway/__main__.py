"""`python -m slipway` is the `slipway` command."""

from slipway.cli.main import run

run()
