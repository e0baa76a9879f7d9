"""Browsers without scripts: Django's client, signed in as somebody."""

from collections.abc import Callable

import pytest
from django.test import Client

from portal.accounts.models import User

Browse = Callable[[User], Client]


@pytest.fixture
def browse(db: None) -> Browse:
    """Make a browser in which a person is signed in."""

    def signed_in(user: User) -> Client:
        client = Client(headers={"Accept": "text/html"})
        client.force_login(user)
        return client

    return signed_in
