"""`manage.py gateway_token`: let a gateway ask what to serve, from this machine alone."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.accounts.request_origin import Origin, acting_as
from portal.core.errors import SlipwayError
from portal.endpoints.services.gateways import admit_gateway


class Command(BaseCommand):
    """Print the token of a gateway and nothing else; an earlier one of that name ends."""

    help = "Print a token that a gateway uses to sync its routes."

    def add_arguments(self, parser: CommandParser) -> None:
        """`--name` is how the gateway is known."""
        parser.add_argument("--name", default="gateway", help="name of the gateway")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the token."""
        try:
            with acting_as(Origin(label="manage.py gateway_token")):
                made = admit_gateway(name=options["name"])
        except SlipwayError as error:
            raise CommandError(f"{error.message} {error.next_step or ''}".strip()) from error
        self.stdout.write(made.secret)
