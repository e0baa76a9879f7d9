"""Keys with which Slipway signs tokens for slurmrestd: create, publish, use, remove."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from portal.compute.adapters.engines.slurm.tokens import SlurmKeys


class Command(BaseCommand):
    """Manage the keys for Slurm. Rotate: create, install the new file, activate, remove."""

    help = "Manage the keys that sign tokens for slurmrestd (docs/slurm.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("action", choices=("create", "list", "jwks", "activate", "remove"))
        parser.add_argument("kid", nargs="?", help="Id of a key, for activate and remove.")
        parser.add_argument("--output", type=Path, help="File for the public keys (jwks).")

    def handle(self, *_: Any, **options: Any) -> None:
        """Do what was asked for, or say why it cannot be done."""
        keys = SlurmKeys(Path(settings.KEYS_DIR) / "slurm")
        action, kid = options["action"], options["kid"] or ""
        if action in ("activate", "remove") and not kid:
            raise CommandError(f"{action} needs the id of a key; see: manage.py slurm_key list")
        try:
            if action == "create":
                self._report_new(keys, keys.create())
            elif action == "activate":
                keys.activate(kid)
                self.stdout.write(f"{kid} signs from now on.")
            elif action == "remove":
                keys.remove(kid)
                self.stdout.write(f"Removed {kid}. Install the public keys again.")
            elif action == "list":
                for each in keys.kids():
                    self.stdout.write(f"{each} {'signs' if each == keys.signing() else ''}".strip())
            else:
                self._publish(keys, options["output"])
        except ValueError as error:
            raise CommandError(str(error)) from error

    def _report_new(self, keys: SlurmKeys, kid: str) -> None:
        self.stdout.write(kid)
        follows = "" if kid == keys.signing() else f", then: manage.py slurm_key activate {kid}"
        self.stderr.write(
            f"Install the public keys in Slurm (manage.py slurm_key jwks --output FILE){follows}"
        )

    def _publish(self, keys: SlurmKeys, output: Path | None) -> None:
        text = json.dumps(keys.jwks(), indent=2)
        if output is None:
            self.stdout.write(text)
            return
        output.write_text(f"{text}\n", "ascii")
        output.chmod(0o644)
        self.stderr.write(f"Wrote {len(keys.kids())} public key(s) to {output}.")
