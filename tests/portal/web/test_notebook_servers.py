"""The pages of notebook servers, without scripts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from portal.accounts.models import User
from portal.notebooks.models import Server
from portal.notebooks.services.servers import launch_server, stop_server
from slipway.schemas.notebook_servers import ServerIn
from tests.personas import Api, Personas, json_of
from tests.portal.notebooks.notebooks import code, notebook, send
from tests.portal.workloads.machines import make_machine, make_tier

Browse = Callable[[User], Client]
LIST = "/p/vision/notebooks"


@pytest.fixture(autouse=True)
def _hardware(people: Personas) -> None:
    make_machine("lab")
    make_tier("small", nano_usd_per_hour=360_000_000)


def text_of(answer: Any) -> str:
    return str(answer.content.decode())


def test_a_server_is_launched_by_the_form(browse: Browse, people: Personas) -> None:
    bob = browse(people.bob)
    assert "Launch your first notebook" in text_of(bob.get(LIST))
    form = text_of(bob.get(f"{LIST}/new"))
    assert "4 free now" in form
    assert "$0.36" in form
    sent = bob.post(f"{LIST}/new", {"name": "desk", "tier": "small", "idle_minutes": "30"})
    server = Server.objects.get()
    assert sent.headers["Location"] == f"{LIST}/servers/{server.pk}?open=1"
    page = text_of(bob.get(sent.headers["Location"]))
    assert "Waiting for hardware" in page
    assert "data-opens" in page
    assert "<code>personal</code> is private to you" in page
    assert "desk" in text_of(bob.get(f"{LIST}?who=me&state=running"))


def test_a_notebook_is_opened_in_the_server_of_its_reader(
    browse: Browse, people: Personas, settings: Any, tmp_path: Path
) -> None:
    settings.SLIPWAY_STORAGE_URL = f"file://{tmp_path / 'blobs'}"
    content = notebook(code("1 + 1"))
    file = json_of(send(Api.of(people.bob), "a b/churn.ipynb", content))["id"]
    at = f"/p/vision/notebooks/files/{file}"
    bob, vera = browse(people.bob), browse(people.vera)
    assert f'action="{at}/lab"' in text_of(bob.get(at))
    assert f"{at}/lab" not in text_of(vera.get(at))
    assert vera.post(f"{at}/lab").status_code == 403
    assert browse(people.charlie).post(f"{at}/lab").status_code == 404
    # Without a server the form of a launch comes first, and remembers the notebook.
    launch = bob.post(f"{at}/lab").headers["Location"]
    assert launch == f"{LIST}/new?file={file}"
    sent = bob.post(launch, {"name": "desk", "tier": "small", "idle_minutes": "30"})
    server = Server.objects.get()
    opening = f"{LIST}/servers/{server.pk}?open=1&file={file}"
    assert sent.headers["Location"] == opening
    # It starts; one that is stopped is started again.
    assert bob.post(f"{at}/lab").headers["Location"] == opening
    stop_server(server=server)
    assert bob.post(f"{at}/lab").headers["Location"] == opening
    server.refresh_from_db()
    assert server.state == "starting"
    # Once it is ready, its page leads to the notebook, in the theme of the portal.
    Server.objects.filter(pk=server.pk).update(state="ready")
    opens = f"{LIST}/servers/{server.pk}/open?file={file}"
    assert f'data-open-url="{opens}"' in text_of(bob.get(opening))
    bob.cookies["slipway-theme"] = "dark"
    desk = bob.get(opens).headers["Location"]
    assert desk.endswith("/lab/tree/a%20b/churn.ipynb?slipway-theme=dark")
    # A notebook of nobody, or of another project, opens nothing of its own.
    bob.cookies["slipway-theme"] = "dark&next=//evil.example"
    for other in ("nb_none", "../x"):
        plain = bob.get(f"{LIST}/servers/{server.pk}/open?file={other}").headers["Location"]
        assert plain.endswith("/lab"), other


def test_a_refused_form_keeps_what_was_typed(browse: Browse, people: Personas) -> None:
    bob = browse(people.bob)
    refused = bob.post(f"{LIST}/new", {"name": "No Slug", "tier": "small", "idle_minutes": "1"})
    assert refused.status_code == 422
    assert "No Slug" in text_of(refused)
    assert not Server.objects.exists()


def test_others_see_it_and_maintainers_stop_it(browse: Browse, people: Personas) -> None:
    server = launch_server(project=people.vision, by=people.bob, spec=ServerIn(name="desk"))
    page_url = f"{LIST}/servers/{server.pk}"
    vera = browse(people.vera)
    seen = text_of(vera.get(page_url))
    assert "<code>personal</code> is private to Bob" in seen
    assert f"{page_url}/stop" not in seen
    assert f"{page_url}/open" not in seen
    assert vera.post(f"{page_url}/stop").status_code == 403
    assert browse(people.charlie).get(page_url).status_code == 404
    mia = browse(people.mia)
    assert f"{page_url}/stop" in text_of(mia.get(page_url))
    assert mia.get(f"{page_url}/open").status_code == 403
    assert "memory is lost" in text_of(mia.get(f"{page_url}/stop"))
    assert mia.post(f"{page_url}/stop").status_code == 302
    server.refresh_from_db()
    assert server.state == "stopped"
    assert mia.post(f"{page_url}/delete").status_code == 302
    assert not Server.objects.exists()


def test_its_owner_changes_when_it_stops_and_starts(browse: Browse, people: Personas) -> None:
    spec = ServerIn(name="desk", daily_start="08:00", idle_minutes=30)
    server = launch_server(project=people.vision, by=people.bob, spec=spec)
    page_url = f"{LIST}/servers/{server.pk}"
    bob = browse(people.bob)
    assert f"{page_url}/edit" in text_of(bob.get(page_url))
    form = text_of(bob.get(f"{page_url}/edit"))
    assert 'value="08:00"' in form
    assert 'value="30"' in form
    wrong = bob.post(
        f"{page_url}/edit", {"idle_minutes": "3", "daily_stop": "soon", "days": ["mon"]}
    )
    assert wrong.status_code == 422
    assert "Enter a time such as 08:00." in text_of(wrong)
    times = {"idle_minutes": "45", "daily_stop": "19:30", "days": ["mon", "fri"]}
    assert bob.post(f"{page_url}/edit", times).status_code == 302
    server.refresh_from_db()
    assert (server.daily_start, server.daily_stop) == ("", "19:30")
    assert (server.idle_after_s, server.days) == (2700, ["mon", "fri"])
    mia = browse(people.mia)
    assert f"{page_url}/edit" not in text_of(mia.get(page_url))
    assert mia.post(f"{page_url}/edit", times).status_code == 403


def test_its_owner_changes_the_hardware_once_it_is_stopped(
    browse: Browse, people: Personas
) -> None:
    make_tier("large", nano_usd_per_hour=720_000_000)
    spec = ServerIn(name="desk", tier="small")
    server = launch_server(project=people.vision, by=people.bob, spec=spec)
    page_url = f"{LIST}/servers/{server.pk}"
    bob = browse(people.bob)
    wish = {"tier": "large", "max_hours": "5", "idle_minutes": "45"}
    running = text_of(bob.get(f"{page_url}/edit"))
    assert "Stop the server to change this." in running
    assert 'type="radio" name="tier" value="small" checked disabled' in running
    assert bob.post(f"{page_url}/edit", wish).status_code == 302
    server.refresh_from_db()
    assert (server.tier.slug, server.max_lifetime_s) == ("small", None)
    assert bob.post(f"{page_url}/stop").status_code == 302
    page = text_of(bob.get(f"{page_url}/edit"))
    assert "$0.72<span" in page, "the price of an hour"
    assert "4 free now" in page
    assert 'type="radio" name="tier" value="large">' in page
    assert bob.post(f"{page_url}/edit", wish | {"tier": "nowhere"}).status_code == 422
    assert bob.post(f"{page_url}/edit", wish).status_code == 302
    server.refresh_from_db()
    assert (server.tier.slug, server.max_lifetime_s) == ("large", 18_000)
    assert bob.post(f"{page_url}/edit", wish | {"max_hours": ""}).status_code == 302
    server.refresh_from_db()
    assert (server.tier.slug, server.max_lifetime_s) == ("large", None)
