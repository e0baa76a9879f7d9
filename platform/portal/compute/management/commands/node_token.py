"""`manage.py node_token`: make a one-time join token on this machine, without an administrator."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.accounts.request_origin import Origin, acting_as
from portal.compute.services.node_registration import make_join_token
from portal.core.errors import SlipwayError


class Command(BaseCommand):
    """Print a join token and nothing else, for whoever starts the node agent of this machine."""

    help = "Print a one-time join token for a node."

    def add_arguments(self, parser: CommandParser) -> None:
        """`--node` binds the token to a name, `--minutes` says how long it can be used."""
        parser.add_argument("--node", default=None, help="name of the node")
        parser.add_argument("--minutes", type=int, default=10, help="hours until it expires")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the token."""
        try:
            with acting_as(Origin(label="manage.py node_token")):
                made = make_join_token(
                    by=None, node=options["node"], expires_in_minutes=options["minutes"]
                )
        except SlipwayError as error:
            raise CommandError(f"{error.message} {error.next_step or ''}".strip()) from error
        self.stdout.write(made.secret)
