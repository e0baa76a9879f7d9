"""A server is deleted while somebody else has to do with it."""

import pytest
from django.db import connection, transaction

from portal.core.errors import Conflict
from portal.notebooks.models import Server
from portal.notebooks.server_transitions import announce
from portal.notebooks.services.servers import delete_server
from portal.notebooks.workload_sync import sync_all
from tests.locks import Other
from tests.portal.notebook_servers.servers import SERVERS, Desk

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]


def test_a_server_that_somebody_edits_is_deleted_right_after(desk: Desk) -> None:
    server = desk.ready()
    desk.api.post(f"{SERVERS}/{server}/stop")
    desk.end(server, "user")
    sync_all()
    row = Server.objects.select_related("project").get(pk=server)
    other = Other(lambda: delete_server(server=row))
    with transaction.atomic():
        edited = Server.objects.select_for_update(no_key=True).get(pk=server)
        other.start()
        announce(edited)
    other.end()
    assert not Server.objects.filter(pk=server).exists()


def test_a_server_that_somebody_starts_meanwhile_is_not_deleted(desk: Desk) -> None:
    server = desk.ready()
    desk.api.post(f"{SERVERS}/{server}/stop")
    desk.end(server, "user")
    sync_all()
    row = Server.objects.select_related("project").get(pk=server)
    other = Other(lambda: delete_server(server=row))
    with transaction.atomic():
        assert desk.api.post(f"{SERVERS}/{server}/start").status_code == 200
        other.start()
    with pytest.raises(Conflict):
        other.end()
    assert desk.look(server)["state"] == "starting"
