"""Files through the REST API."""

import base64
import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from portal.accounts.models import ApiToken, AuditEvent, Membership, User
from portal.accounts.services.projects import archive_project
from portal.core import clock
from portal.storage.models import Blob, StoredFile
from slipway.schemas.accounts import Role, Scope
from tests.personas import PASSWORD, Api, Personas, json_of, make_token

CONTENT = b"sepal,petal\n" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OCTETS = "application/octet-stream"


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_STORAGE_URL = f"file://{tmp_path / 'blobs'}"


def send(
    api: Api,
    path: str,
    content: bytes = CONTENT,
    *,
    method: str = "POST",
    kind: str = OCTETS,
    headers: dict[str, str] | None = None,
) -> HttpResponse:
    # Django's client drops the type of an empty body unless it is told as a header.
    sent = {"Content-Type": kind} | (headers or {})
    if api.token:
        sent["Authorization"] = f"Bearer {api.token}"
    answer: Any = api.client.generic(method, path, content, content_type=kind, headers=sent)
    assert isinstance(answer, HttpResponse)
    return answer


def upload(api: Api, content: bytes = CONTENT, project: str = "vision", **options: Any) -> Any:
    return send(api, f"/api/v1/projects/{project}/files?name=iris.csv", content, **options)


def body(answer: Any) -> bytes:
    assert isinstance(answer, StreamingHttpResponse), answer.content
    return answer.getvalue()


def follow(link: Any, **headers: Any) -> Any:
    """Use a link as somebody who has nothing but the link."""
    parts = urlsplit(link["url"])
    path = f"{parts.path}?{parts.query}"
    if link["method"] == "PUT":
        return send(Api(), path, method="PUT")
    return Client().get(path, headers=headers)


def test_a_file_goes_up_is_listed_and_comes_down_again(people: Personas) -> None:
    bob = Api.of(people.bob)

    answer = upload(bob)

    assert answer.status_code == 201
    made = json_of(answer)
    assert (made["name"], made["project"], made["sha256"]) == ("iris.csv", "vision", SHA256)
    assert made["size_bytes"] == len(CONTENT)
    assert made["created_by"]["email"] == "bob@example.org"
    assert json_of(bob.get("projects/vision/files"))["items"] == [made]
    assert json_of(bob.get("projects/vision/files?q=IRIS"))["items"] == [made]
    assert json_of(bob.get("projects/vision/files?q=rose"))["items"] == []
    assert json_of(bob.get(f"files/{made['id']}")) == made
    down = bob.get(f"files/{made['id']}/content")
    assert body(down) == CONTENT
    assert down.headers["Content-Type"] == OCTETS
    assert down.headers["Content-Length"] == str(len(CONTENT))
    assert down.headers["Content-Disposition"] == 'attachment; filename="iris.csv"'
    assert down.headers["X-Content-Type-Options"] == "nosniff"
    assert down.headers["ETag"] == f'"{SHA256}"'
    digest = base64.b64encode(bytes.fromhex(SHA256)).decode()
    assert down.headers["Repr-Digest"] == f"sha-256=:{digest}:"


@pytest.mark.parametrize(
    ("byte_range", "start", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=11990-", 11990, 12000),
        ("bytes=-7", 11993, 12000),
        ("bytes=5-99999", 5, 12000),
        ("bytes=-99999", 0, 12000),
    ],
)
def test_a_range_comes_down_alone(people: Personas, byte_range: str, start: int, end: int) -> None:
    bob = Api.of(people.bob)
    file_id = json_of(upload(bob))["id"]

    down = bob.get(f"files/{file_id}/content", Range=byte_range)

    assert down.status_code == 206
    assert body(down) == CONTENT[start:end]
    assert down.headers["Content-Range"] == f"bytes {start}-{end - 1}/12000"


@pytest.mark.parametrize("byte_range", ["bytes=0-1,5-6", "lines=1-2", "bytes=9-2", "bytes=-", "x"])
def test_a_range_nobody_can_read_is_ignored(people: Personas, byte_range: str) -> None:
    bob = Api.of(people.bob)
    file_id = json_of(upload(bob))["id"]

    down = bob.get(f"files/{file_id}/content", Range=byte_range)

    assert down.status_code == 200
    assert body(down) == CONTENT


@pytest.mark.parametrize("byte_range", ["bytes=12000-", "bytes=99999-100000", "bytes=-0"])
def test_a_range_behind_the_end_is_416(people: Personas, byte_range: str) -> None:
    bob = Api.of(people.bob)
    file_id = json_of(upload(bob))["id"]

    down = bob.get(f"files/{file_id}/content", Range=byte_range)

    assert down.status_code == 416
    assert down.headers["Content-Range"] == "bytes */12000"


def test_a_resumed_download_of_other_bytes_starts_over(people: Personas) -> None:
    bob = Api.of(people.bob)
    path = f"files/{json_of(upload(bob))['id']}/content"

    same = bob.get(path, **{"Range": "bytes=5-", "If-Range": f'"{SHA256}"'})
    other = bob.get(path, **{"Range": "bytes=5-", "If-Range": '"something-else"'})

    assert (same.status_code, body(same)) == (206, CONTENT[5:])
    assert (other.status_code, body(other)) == (200, CONTENT)


def structured(sha256: str) -> str:
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:"


@pytest.mark.parametrize("header", ["X-Slipway-Sha256", "Content-Digest", "Repr-Digest"])
def test_a_declared_digest_is_checked(people: Personas, header: str) -> None:
    bob = Api.of(people.bob)
    good, bad = SHA256, "0" * 64
    if header != "X-Slipway-Sha256":
        good, bad = structured(good), f"md5=:AAAA:, {structured(bad)}"

    assert upload(bob, headers={header: good}).status_code == 201
    refused = upload(bob, headers={header: bad})

    assert refused.status_code == 422
    assert json_of(refused)["code"] == "digest_mismatch"
    assert StoredFile.objects.count() == 1


@pytest.mark.parametrize(
    "digest", ["", "abc", "z" * 64, "sha-256=:AAAA:", "md5=:AAAA:", "sha-256=:é:"]
)
def test_a_digest_that_is_none_is_refused(people: Personas, digest: str) -> None:
    refused = upload(Api.of(people.bob), headers={"Content-Digest": digest})

    assert refused.status_code == 422
    assert json_of(refused)["field"] == "Content-Digest"


def test_two_declarations_that_differ_are_refused(people: Personas) -> None:
    headers = {"X-Slipway-Sha256": SHA256, "Content-Digest": structured("0" * 64)}

    refused = upload(Api.of(people.bob), headers=headers)

    assert json_of(refused)["code"] == "invalid_digest"


def test_a_file_sent_as_another_type_is_refused(people: Personas) -> None:
    refused = upload(Api.of(people.bob), kind="text/csv")

    assert refused.status_code == 415
    assert "application/octet-stream" in json_of(refused)["next_step"]


@pytest.mark.parametrize("name", ["", "a/b.csv", "a%5Cb", "..", "a%00b", "a%E2%80%AEb", "x" * 300])
def test_a_name_that_is_no_file_name_is_422(people: Personas, name: str) -> None:
    answer = send(Api.of(people.bob), f"/api/v1/projects/vision/files?name={name}")

    assert answer.status_code == 422
    assert json_of(answer)["field"] == "name"


def test_the_same_key_uploads_one_file_and_keeps_one_copy(
    people: Personas,
    tmp_path: Path,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    bob = Api.of(people.bob)

    with django_capture_on_commit_callbacks(execute=True):
        first = upload(bob, headers={"Idempotency-Key": "k-1"})
        second = upload(bob, headers={"Idempotency-Key": "k-1"})
        other = upload(bob, b"other bytes", headers={"Idempotency-Key": "k-1"})

    assert second.status_code == 201
    assert json_of(first) == json_of(second)
    assert second.headers["Idempotent-Replayed"] == "true"
    assert json_of(other)["code"] == "idempotency_key_reused"
    assert StoredFile.objects.count() == 1
    assert len([path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]) == 1


def test_deleting_a_file_hides_it_and_tells_nothing_of_others(people: Personas) -> None:
    bob, charlie = Api.of(people.bob), Api.of(people.charlie)
    shared = json_of(upload(bob))["id"]
    kept = json_of(upload(charlie, project="other"))["id"]
    lone = json_of(upload(bob, b"only bob has these"))["id"]

    answers = [bob.delete(f"files/{file_id}") for file_id in (shared, lone)]

    assert [answer.status_code for answer in answers] == [204, 204]
    assert [answer.content for answer in answers] == [b"", b""]
    assert bob.get(f"files/{shared}").status_code == 404
    assert body(charlie.get(f"files/{kept}/content")) == CONTENT


def shape(answer: HttpResponse) -> tuple[int, set[str], set[str]]:
    return answer.status_code, set(answer.headers), set(json_of(answer))


def test_no_answer_tells_that_another_tenant_has_the_same_bytes(people: Personas) -> None:
    bob, charlie = Api.of(people.bob), Api.of(people.charlie)
    upload(bob)

    known = upload(charlie, project="other", headers={"X-Slipway-Sha256": SHA256})
    unknown = upload(charlie, b"new", project="other")
    empty_claim = upload(charlie, b"", project="other", headers={"X-Slipway-Sha256": SHA256})

    assert shape(known) == shape(unknown)
    assert empty_claim.status_code == 422
    listed = json_of(charlie.get("projects/other/files"))["items"]
    assert {item["created_by"]["email"] for item in listed} == {"charlie@example.org"}
    assert Blob.objects.count() == 2


def test_a_file_of_another_tenant_answers_like_one_that_does_not_exist(people: Personas) -> None:
    bob, charlie = Api.of(people.bob), Api.of(people.charlie)
    foreign = json_of(upload(bob))["id"]
    missing = foreign[:-4] + "0000"

    for method, path, sent in (
        ("GET", "", None),
        ("GET", "/content", None),
        ("DELETE", "", None),
        ("POST", "/signed-url", {}),
    ):
        answers = [
            charlie.call(method, f"files/{file_id}{path}", sent) for file_id in (foreign, missing)
        ]
        bodies = [{**json_of(answer), "request_id": ""} for answer in answers]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert bodies[0] == bodies[1]
    assert StoredFile.objects.filter(pk=foreign).exists()


def test_roles_and_scopes_decide_as_for_everything_else(people: Personas) -> None:
    file_id = json_of(upload(Api.of(people.bob)))["id"]
    vera, reader = Api.of(people.vera), Api.of(people.bob, scopes=[Scope.FILES_READ])
    writer = Api.of(people.bob, scopes=[Scope.FILES_WRITE])

    assert body(vera.get(f"files/{file_id}/content")) == CONTENT
    assert upload(vera).status_code == 403
    assert vera.delete(f"files/{file_id}").status_code == 403
    assert upload(reader).status_code == 403
    assert writer.get(f"files/{file_id}/content").status_code == 403
    assert Api().get(f"files/{file_id}/content").status_code == 401
    assert Api.of(people.root).get(f"files/{file_id}/content").status_code == 404


def test_files_of_an_archived_project_are_out_of_sight(people: Personas) -> None:
    alice = Api.of(people.alice)
    file_id = json_of(upload(alice))["id"]
    link = json_of(alice.post(f"files/{file_id}/signed-url", {}))

    archive_project(project=people.vision)

    assert alice.get(f"files/{file_id}").status_code == 404
    assert follow(link).status_code == 404


def download_link(person: Api, file_id: str, **options: Any) -> Any:
    answer = person.post(f"files/{file_id}/signed-url", options)
    assert answer.status_code == 201, answer.content
    return json_of(answer)


def upload_link(person: Api, **options: Any) -> Any:
    answer = person.post("projects/vision/files/signed-url", {"name": "by-link.csv"} | options)
    assert answer.status_code == 201, answer.content
    return json_of(answer)


def test_a_link_downloads_without_a_token(people: Personas) -> None:
    vera = Api.of(people.vera)
    file_id = json_of(upload(Api.of(people.bob)))["id"]

    link = download_link(vera, file_id, expires_in_seconds=60)

    assert link["method"] == "GET"
    assert body(follow(link)) == CONTENT
    assert body(follow(link, Range="bytes=0-4")) == CONTENT[:5]
    assert AuditEvent.objects.get(verb="file.link").actor == "vera@example.org"


def test_a_link_uploads_once(people: Personas) -> None:
    bob = Api.of(people.bob)
    link = upload_link(bob)

    first, second = follow(link), follow(link)

    assert first.status_code == 201
    assert json_of(first)["id"] == link["file_id"]
    assert json_of(first)["created_by"]["email"] == "bob@example.org"
    assert json_of(second)["code"] == "link_used"
    assert body(bob.get(f"files/{link['file_id']}/content")) == CONTENT


def both_links(person: Api) -> list[Any]:
    return [download_link(person, json_of(upload(person))["id"]), upload_link(person)]


def test_links_die_with_their_time(people: Personas) -> None:
    links = both_links(Api.of(people.bob))

    with clock.frozen(clock.now() + timedelta(seconds=301)):
        assert [follow(link).status_code for link in links] == [404, 404]


def test_links_die_the_moment_their_maker_is_removed(people: Personas) -> None:
    links = both_links(Api.of(people.bob))

    Membership.objects.filter(user=people.bob, project=people.vision).delete()

    assert [follow(link).status_code for link in links] == [404, 404]


def test_links_obey_the_role_their_maker_has_now(people: Personas) -> None:
    down, up = both_links(Api.of(people.bob))

    Membership.objects.filter(user=people.bob).update(role=Role.VIEWER)

    assert body(follow(down)) == CONTENT
    assert follow(up).status_code == 403


def test_links_die_with_the_suspension_of_their_maker(people: Personas) -> None:
    links = both_links(Api.of(people.bob))

    User.objects.filter(pk=people.bob.pk).update(is_active=False)

    assert [follow(link).status_code for link in links] == [404, 404]


def test_links_die_with_the_token_they_were_made_with(people: Personas) -> None:
    links = both_links(Api.of(people.bob))

    ApiToken.objects.update(revoked_at=clock.now())

    assert [follow(link).status_code for link in links] == [404, 404]


def test_links_made_in_a_session_die_with_the_password(people: Personas) -> None:
    api = Api()
    api.client.force_login(people.bob)
    file_id = json_of(upload(Api.of(people.bob)))["id"]
    link = download_link(api, file_id)
    assert body(follow(link)) == CONTENT

    people.bob.set_password(PASSWORD + "-new")
    people.bob.save()

    assert follow(link).status_code == 404


def test_a_link_of_a_confined_token_reaches_only_its_project(people: Personas) -> None:
    bob = Api.of(people.bob, project=people.vision)
    link = download_link(bob, json_of(upload(bob))["id"])

    assert body(follow(link)) == CONTENT


def test_a_link_opens_nothing_but_what_it_says(people: Personas) -> None:
    bob = Api.of(people.bob)
    own, other = json_of(upload(bob))["id"], json_of(upload(bob, b"other"))["id"]
    down, up = download_link(bob, own), upload_link(bob)
    text = {link["method"]: urlsplit(link["url"]).query for link in (down, up)}
    changed = text["GET"][:-1] + ("A" if text["GET"][-1] != "A" else "B")

    for path in (
        f"files/{other}/content?{text['GET']}",
        f"files/{own}/content?{changed}",
        f"files/{own}/content?link=",
        f"files/{up['file_id']}/content?{text['PUT']}",
    ):
        assert Api().get(path).status_code == 404, path
    for target in (f"{own}/content?{text['GET']}", f"{other}/content?{text['PUT']}"):
        answer = send(Api(), f"/api/v1/files/{target}", method="PUT")
        assert answer.status_code == 404, target
    # A link is judged alone: a good token beside a bad link does not help.
    assert bob.get(f"files/{own}/content?link=forged").status_code == 404
    # Nor does a link open the doors beside its own.
    assert Api().get(f"files/{own}?{text['GET']}").status_code == 401
    assert Api().delete(f"files/{own}?{text['GET']}").status_code == 401


@pytest.mark.parametrize("seconds", [0, -1, 901, 10**9])
def test_a_link_lives_at_most_fifteen_minutes(people: Personas, seconds: int) -> None:
    bob = Api.of(people.bob)
    file_id = json_of(upload(bob))["id"]

    answer = bob.post(f"files/{file_id}/signed-url", {"expires_in_seconds": seconds})

    assert answer.status_code == 422
    assert json_of(answer)["field"] == "expires_in_seconds"


def test_a_viewer_makes_no_link_to_upload(people: Personas) -> None:
    answer = Api.of(people.vera).post("projects/vision/files/signed-url", {"name": "a.csv"})

    assert answer.status_code == 403


def test_octets_to_another_address_are_held_to_the_limit_of_ordinary_bodies(
    people: Personas, settings: Settings
) -> None:
    api = Api(make_token(people.bob))

    answer = send(api, "/api/v1/projects", b"[" + b" " * settings.DATA_UPLOAD_MAX_MEMORY_SIZE)

    assert answer.status_code == 413
