"""`manage.py gateway_token`: create a token for a gateway."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.accounts.request_origin import Origin, origin_context
from portal.core.errors import SlipwayError
from portal.endpoints.services.gateways import admit_gateway


class Command(BaseCommand):
    """Prints only the token of a gateway. An earlier one of that name is revoked."""

    help = "Print a token for a gateway."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--name", default="gateway", help="name of the gateway")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the token."""
        try:
            with origin_context(Origin(label="manage.py gateway_token")):
                made = admit_gateway(name=options["name"])
        except SlipwayError as error:
            raise CommandError(f"{error.message} {error.next_step or ''}".strip()) from error
        self.stdout.write(made.secret)
