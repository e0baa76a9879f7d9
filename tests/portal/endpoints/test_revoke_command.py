"""`manage.py revoke_key`: a key is revoked at once while the portal is stopped."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from portal.accounts.models import AuditEvent
from portal.config.env import env
from portal.config.gateway import folder_of
from portal.endpoints.models import EndpointKey
from tests.personas import Api, Personas, json_of
from tests.portal.endpoints.serving import Lab
from tests.workers.machines import eventually
from tests.workers.serving import KEY, Plane, key_route, plane


@pytest.fixture
def dataplane() -> Iterator[Plane]:
    """A real gateway, whose folder is where that of this installation is looked for."""
    folder = folder_of(env())
    with plane() as running_plane:
        folder.parent.mkdir(parents=True, exist_ok=True)
        Path(folder).symlink_to(running_plane.data_dir)
        yield running_plane
        folder.unlink()


@pytest.fixture
def key(lab: Lab) -> tuple[str, str]:
    """The id and the text of a key of the endpoint digits."""
    lab.create()
    made = json_of(lab.api.post("projects/vision/endpoints/digits/keys", {"name": "phone"}))
    return made["id"], made["key"]


def revoke(*arguments: str) -> str:
    """Run the command; returns what it prints."""
    out = StringIO()
    call_command("revoke_key", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.thorough
def test_the_gateway_refuses_the_key_while_the_portal_is_stopped(
    key: tuple[str, str], dataplane: Plane
) -> None:
    key_id, text = key
    dataplane.start_gateway()
    dataplane.serve(dataplane.replica(), keys=[key_route(KEY), key_route(text, key_id)])
    dataplane.portal.stop()
    assert dataplane.predict([[1, 2, 3, 4]], key=text).status == 200
    output = revoke(key_id)
    assert "rejects them within a second" in output
    assert f"workers.gateway.revoke --data-dir FOLDER {key_id}" in output
    eventually(lambda: dataplane.predict([[1, 2, 3, 4]], key=text).status == 401, within_s=5)
    assert dataplane.predict([[1, 2, 3, 4]]).status == 200
    assert EndpointKey.objects.get(pk=key_id).revoked_at is not None
    event = AuditEvent.objects.filter(verb="endpoint.key_revoke").latest("pk")
    assert (event.actor, event.target_id) == ("manage.py revoke_key", key_id)


def test_an_unknown_key_is_refused_and_the_others_stay(key: tuple[str, str]) -> None:
    with pytest.raises(CommandError, match=r"no key epk_nothing\. Nothing was revoked"):
        revoke("epk_nothing", key[0])
    assert EndpointKey.objects.get(pk=key[0]).revoked_at is None


def test_a_key_is_known_by_its_text(
    key: tuple[str, str], monkeypatch: pytest.MonkeyPatch, people: Personas
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(f"{key[1]}\n"))
    assert key[0] in revoke("--stdin")
    shown = json_of(Api.of(people.bob).get("projects/vision/endpoints/digits/keys"))["items"]
    assert [item["revoked_at"] is None for item in shown] == [False]
