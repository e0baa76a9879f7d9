"""`manage.py node_token`: create a one-time join token on this machine."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.accounts.request_origin import Origin, origin_context
from portal.compute.services.node_registration import create_join_token
from portal.core.errors import SlipwayError


class Command(BaseCommand):
    """Prints only the join token, to start a node agent."""

    help = "Print a one-time token for a node to join."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--node", default=None, help="name of the node")
        parser.add_argument("--minutes", type=int, default=10, help="minutes until it expires")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the token."""
        try:
            with origin_context(Origin(label="manage.py node_token")):
                made = create_join_token(
                    by=None, node=options["node"], expires_in_minutes=options["minutes"]
                )
        except SlipwayError as error:
            raise CommandError(f"{error.message} {error.next_step or ''}".strip()) from error
        self.stdout.write(made.secret)
