"""Lists that fetch their pages while they are read."""

import httpx
import pytest

import slipway
from slipway import errors


def team(number: int) -> dict[str, object]:
    return {
        "id": f"t{number}",
        "slug": f"team-{number}",
        "name": f"Team {number}",
        "created_at": "2026-11-20T12:00:00Z",
    }


class Teams:
    """Serves 5 teams, 2 a page unless another limit is asked for."""

    def __init__(self) -> None:
        self.queries: list[dict[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        query = dict(request.url.params)
        self.queries.append(query)
        start, size = int(query.get("cursor", 0)), int(query.get("limit", 2))
        end = start + size
        items = [team(number) for number in range(start, min(end, 5))]
        return httpx.Response(
            200, json={"items": items, "next_cursor": str(end) if end < 5 else None}
        )


def client_of(server: Teams) -> slipway.Client:
    return slipway.Client("http://portal.test", "slp_x", transport=httpx.MockTransport(server))


def test_iterating_fetches_every_page_in_order() -> None:
    server = Teams()
    slugs = [team.slug for team in client_of(server).teams.list(search="t")]
    assert slugs == [f"team-{number}" for number in range(5)]
    assert server.queries == [
        {"q": "t"},
        {"q": "t", "cursor": "2"},
        {"q": "t", "cursor": "4"},
    ]


def test_no_page_is_fetched_before_it_is_needed() -> None:
    server = Teams()
    teams = client_of(server).teams.list()
    assert server.queries == []
    iterator = iter(teams)
    next(iterator), next(iterator)
    assert len(server.queries) == 1
    next(iterator)
    assert len(server.queries) == 2


def test_a_list_can_be_read_twice() -> None:
    teams = client_of(Teams()).teams.list()
    assert len(list(teams)) == len(list(teams)) == 5


def test_a_page_can_be_asked_for_by_itself() -> None:
    teams = client_of(Teams()).teams.list()
    first = teams.page(limit=3)
    assert [team.slug for team in first.items] == ["team-0", "team-1", "team-2"]
    second = teams.page(cursor=first.next_cursor, limit=3)
    assert [team.slug for team in second.items] == ["team-3", "team-4"]
    assert second.next_cursor is None


def test_a_list_that_does_not_advance_ends_with_an_error() -> None:
    def stuck(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"items": [team(1)], "next_cursor": "same"})

    client = slipway.Client("http://portal.test", "slp_x", transport=httpx.MockTransport(stuck))
    with pytest.raises(errors.UnexpectedAnswer, match="does not advance"):
        list(client.teams.list())
