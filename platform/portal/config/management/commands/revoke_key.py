"""`manage.py revoke_key`: revoke endpoint keys on this machine, with the portal stopped."""

import os
import subprocess
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.accounts.request_origin import Origin, origin_context
from portal.accounts.tokens import hash_of
from portal.config.env import ROOT, env
from portal.config.gateway import folder_of
from portal.config.local_node import base_environment
from portal.endpoints.models import EndpointKey
from portal.endpoints.services.keys import revoke_key

_PATIENCE_S = 30


class Command(BaseCommand):
    """Revokes keys in the database, and makes the gateway of this machine refuse them."""

    help = "Revoke keys of endpoints while the portal is stopped."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments: ids of keys, or `--stdin` for the text of one."""
        parser.add_argument("key", nargs="*", help="id of a key, such as epk_…")
        parser.add_argument(
            "--stdin", action="store_true", help="read the text of a key from stdin"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Revoke all keys, or none if one is unknown."""
        keys = list(EndpointKey.objects.shown().filter(pk__in=options["key"]))
        unknown = set(options["key"]) - {key.pk for key in keys}
        if options["stdin"]:
            digest = hash_of(sys.stdin.readline().strip())
            given = EndpointKey.objects.shown().filter(sha256=digest).first()
            if given is None:
                unknown.add("with the text from stdin")
            else:
                keys.append(given)
        if unknown:
            raise CommandError(
                f"There is no key {', '.join(sorted(unknown))}. Nothing was revoked. "
                "The page of an endpoint lists its keys with their ids."
            )
        if not keys:
            raise CommandError("Give the id of a key, or its text with --stdin.")
        with origin_context(Origin(label="manage.py revoke_key")):
            for key in keys:
                revoke_key(endpoint=key.endpoint, by=None, key_id=key.pk)
        ids = [key.pk for key in keys]
        self.stdout.write(f"Revoked {', '.join(ids)}.")
        self._refuse_here(ids)
        self.stdout.write(
            "Gateways on other machines are notified when the portal runs again. To revoke them "
            "on a gateway now, run there, with its own data folder:\n  python -m "
            f"workers.gateway.revoke --data-dir FOLDER {' '.join(ids)}"
        )

    def _refuse_here(self, ids: list[str]) -> None:
        folder = folder_of(env())
        if not folder.is_dir():
            return
        # With --force also keys that the present configuration lacks: an older copy may have them.
        done = subprocess.run(
            [
                *(sys.executable, "-m", "workers.gateway.revoke", "--force"),
                *("--data-dir", str(folder), *ids),
            ],
            cwd=ROOT,
            env=base_environment(dict(os.environ)),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        if done.returncode:
            raise CommandError(f"The gateway on this machine could not be reached: {done.stderr}")
        self.stdout.write("The gateway on this machine rejects them within a second.")
