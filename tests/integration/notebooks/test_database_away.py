"""Notebooks while the portal's database is away: kernels work on, the rest has its 503 in time."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.faults.requests_at_once import WITHIN_S, check_unavailable, send
from tests.notebooks import PASSWORD, Person
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.integration


@contextmanager
def _database_away(running: RunningPortal) -> Iterator[None]:
    """Have nobody use the portal's tables for the duration of a block."""
    at = running.installation
    if url := at.environ["DATABASE_URL"]:
        with psycopg.connect(url) as server:
            query = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'"
            tables = ", ".join(row[0] for row in server.execute(query))
            server.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
            yield
            server.rollback()
        return
    file = at.data_dir / "slipway.sqlite3"
    elsewhere = file.with_name("elsewhere.sqlite3")
    file.rename(elsewhere)
    yield
    elsewhere.rename(file)


@pytest.mark.thorough
def test_kernels_work_on_and_other_requests_get_their_503_in_time(running: RunningPortal) -> None:
    person = Person(running, "bob", PASSWORD)
    server = person.ready()
    desk = person.open(server)
    kernel = desk.kernel()
    assert desk.run(kernel, "n = 41; print(n)").strip() == "41"
    colleague, late = (Person(running, name, PASSWORD) for name in ("dora", "bob"))
    callback = _callback(late, desk.base)
    with _database_away(running):
        assert desk.run(kernel, "print(n + 1)").strip() == "42"
        page = send(person.browser, "GET", f"{desk.base}/lab")
        assert page.status == 200
        assert page.seconds < WITHIN_S
        # To sign in, a browser goes to the portal, and comes back with what the Hub sends there.
        check_unavailable([send(colleague.browser, "GET", f"{desk.base}/lab")])
        check_unavailable([send(late.browser, "GET", callback)])
    wait_for(lambda: person.look(server), "the portal", within_s=30)
    assert person.look(server)["state"] == "ready"
    assert desk.run(kernel, "print(n)").strip() == "41"
    assert late.browser.get(f"{desk.base}/lab").url.path.endswith("/lab")
    person.stop(server)


def _callback(person: Person, base: str) -> str:
    """Return the address that the portal sends a browser back to after it has signed in."""
    url = f"{base}/lab"
    while "/hub/oauth_callback" not in url:
        answer = person.browser.get(url, follow_redirects=False)
        assert answer.is_redirect, answer.text
        url = str(answer.next_request.url) if answer.next_request else ""
    return url
